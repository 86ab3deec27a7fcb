SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra
FROM bid AS B
JOIN (
  SELECT max(price) AS maxprice,
    time_bucket(INTERVAL '10 seconds', dateTime) + INTERVAL '10 seconds' AS dateTime
  FROM bid
  GROUP BY time_bucket(INTERVAL '10 seconds', dateTime)
) AS B1
ON B.price = B1.maxprice
WHERE B.dateTime BETWEEN B1.dateTime - INTERVAL '10 seconds' AND B1.dateTime;
