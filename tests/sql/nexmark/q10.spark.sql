SELECT auction, bidder, price, dateTime, extra, date_format(dateTime, 'yyyy-MM-dd') AS bid_day,
  date_format(dateTime, 'HH:mm') AS bid_minute
FROM bid
