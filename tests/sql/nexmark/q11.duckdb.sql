WITH marked AS (
  SELECT bidder, dateTime, dateTime > lag(dateTime) OVER w + INTERVAL '10 seconds' AS is_new
  FROM bid WINDOW w AS (PARTITION BY bidder ORDER BY dateTime)
), numbered AS (
  SELECT *, count(*) FILTER (WHERE is_new) OVER (PARTITION BY bidder ORDER BY dateTime) AS number
  FROM marked
)
SELECT bidder, count(*) AS bid_count, min(dateTime) AS starttime,
  max(dateTime) + INTERVAL '10 seconds' AS endtime
FROM numbered GROUP BY bidder, number;
