-- The streams of Nexmark, a benchmark of auctions.
CREATE TABLE person (
  id BIGINT NOT NULL, name VARCHAR, emailAddress VARCHAR, creditCard VARCHAR, city VARCHAR,
  state VARCHAR, dateTime TIMESTAMP(3) NOT NULL, extra VARCHAR,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND
) WITH (kind = 'file', path = 'person');

CREATE TABLE auction (
  id BIGINT NOT NULL, itemName VARCHAR, description VARCHAR, initialBid BIGINT, reserve BIGINT,
  dateTime TIMESTAMP(3) NOT NULL, expires TIMESTAMP(3), seller BIGINT NOT NULL, category BIGINT,
  extra VARCHAR, WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND
) WITH (kind = 'file', path = 'auction');

CREATE TABLE bid (
  auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL, channel VARCHAR,
  url VARCHAR, dateTime TIMESTAMP(3) NOT NULL, extra VARCHAR,
  WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECOND
) WITH (kind = 'file', path = 'bid');

-- The names of q13: one version of each key, valid before all bids.
CREATE TABLE side_input (
  key BIGINT NOT NULL, value VARCHAR, since TIMESTAMP(3) NOT NULL, PRIMARY KEY (key),
  WATERMARK FOR since AS since
) WITH (kind = 'file', path = 'side_input');
