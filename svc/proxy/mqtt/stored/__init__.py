"""Store-and-forward (``ack: middleware``): what clients send is stored, acknowledged and handed to the broker later."""
