WITH slid AS (
  SELECT auction, starttime, count(*) AS num
  FROM bid, LATERAL (
    SELECT time_bucket(INTERVAL '2 seconds', dateTime) - INTERVAL '2 seconds' * n AS starttime
    FROM range(5) AS r (n)
  )
  GROUP BY auction, starttime
)
SELECT auction, num FROM slid
QUALIFY num = max(num) OVER (PARTITION BY starttime);
