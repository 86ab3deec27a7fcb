-- The average of the last prices of each seller. The original orders by a column that is not
-- grouped; here it is the time of the last bid.
SELECT Q.seller,
  avg(Q.final) OVER (
    PARTITION BY Q.seller ORDER BY Q.dateTime ROWS BETWEEN 10 PRECEDING AND CURRENT ROW
  ) AS average
FROM (
  SELECT max(B.price) AS final, A.seller, max(B.dateTime) AS dateTime
  FROM auction AS A, bid AS B
  WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
  GROUP BY A.id, A.seller
) AS Q;
