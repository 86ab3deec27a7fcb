SELECT mod(auction, 8) AS lane, count(*) AS bid_count, window.end AS endtime
FROM bid
GROUP BY mod(auction, 8), window(dateTime, '1 hour')
