-- Bids with a value of a table of constants.
SELECT B.auction, B.bidder, B.price, B.dateTime, S.value
FROM bid AS B
JOIN side_input FOR SYSTEM_TIME AS OF B.dateTime AS S ON mod(B.auction, 10000) = S.key;
