-- Bids of each second first, and then the sum of the 3,600 seconds before each end.
WITH seconds AS (
  SELECT mod(auction, 8) AS lane, date_trunc('second', dateTime) AS second, count(*) AS n FROM bid GROUP BY ALL
)
SELECT lane, CAST(sum(n) AS BIGINT) AS bid_count,
  second + INTERVAL '1 second' * k AS endtime
FROM seconds, range(1, 3601) AS r (k)
GROUP BY ALL;
