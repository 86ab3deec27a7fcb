-- New persons who open an auction in the same window.
SELECT P.id, P.name, P.starttime
FROM (
  SELECT P.id, P.name, window_start AS starttime, window_end AS endtime
  FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)) AS P
  GROUP BY P.id, P.name, window_start, window_end
) AS P
JOIN (
  SELECT A.seller, window_start AS starttime, window_end AS endtime
  FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)) AS A
  GROUP BY A.seller, window_start, window_end
) AS A
ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime;
