"""
Carry messages from a local MQTT broker to another one, at least once.

    python docs/examples/uplink.py 127.0.0.1:1883 127.0.0.1:1884 'devices/#'
"""

import sys

from paho.mqtt.client import MQTT_ERR_SUCCESS, CallbackAPIVersion, Client


def connected(client, address):
    host, port = address.rsplit(":", 1)
    client.connect(host, int(port), keepalive=30)
    return client


def main(source, target, topic_filter):
    waiting = {}  # what the target has not acknowledged yet, by the identifier there
    up = Client(CallbackAPIVersion.VERSION2, "uplink", clean_session=False)
    down = Client(CallbackAPIVersion.VERSION2, "uplink", clean_session=False, manual_ack=True)

    def carry(_client, _data, message):
        sent = up.publish(message.topic, message.payload, qos=1, retain=message.retain)
        if sent.rc != MQTT_ERR_SUCCESS:
            raise ConnectionError("the target is not connected")  # the source delivers it again
        waiting[sent.mid] = message.mid, message.qos

    def acknowledged(_client, _data, mid, _reason, _properties):
        down.ack(*waiting.pop(mid))

    down.on_connect = lambda client, *_: client.subscribe(topic_filter, qos=1)
    down.on_message, up.on_publish = carry, acknowledged
    connected(up, target)
    connected(down, source)
    while up.loop(0.05) == MQTT_ERR_SUCCESS and down.loop(0.05) == MQTT_ERR_SUCCESS:
        pass
    raise SystemExit("a connection was lost")  # a supervisor starts it again


if __name__ == "__main__":
    main(*sys.argv[1:])
