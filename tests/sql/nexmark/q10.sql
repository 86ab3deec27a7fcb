-- Bids with the day and the minute by which files are partitioned.
SELECT auction, bidder, price, dateTime, extra,
  date_format(dateTime, '%Y-%m-%d') AS day, date_format(dateTime, '%H:%M') AS minute
FROM bid;
