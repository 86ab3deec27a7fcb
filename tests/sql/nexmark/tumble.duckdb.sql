SELECT mod(auction, 8) AS lane, count(*) AS bid_count,
  time_bucket(INTERVAL '1 hour', dateTime) + INTERVAL '1 hour' AS endtime
FROM bid
GROUP BY ALL;
