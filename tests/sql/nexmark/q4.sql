-- The average final price of each category.
SELECT Q.category, avg(Q.final)
FROM (
  SELECT max(B.price) AS final, A.category
  FROM auction AS A, bid AS B
  WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
  GROUP BY A.id, A.category
) AS Q
GROUP BY Q.category;
