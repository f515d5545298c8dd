At the rate of records (`notary.receiptsPerSecond`, `recordOctetsPerSecond`, `queue`) clients are held back by TCP, for HTTP in both
directions and MQTT of any version and QoS, and refused only after `notary.rateWait` (5 s). A message with QoS 0 whose record is
not admitted for now closes its client in MQTT 5.0, too: it was dropped without a word.
With `ack: middleware` a broker that acknowledges messages and is late with PINGRESP only is not left any more.
