bin/bench measures the broker against Mosquitto, with --all also against amqtt; --mqtt takes these rows alone.
