// An MQTT.js client that reads commands from standard input and writes events to standard output, a JSON object a line.
"use strict";

const fs = require("fs");
const mqtt = require("mqtt");
const readline = require("readline");

const tell = (event, members = {}) => process.stdout.write(JSON.stringify({ event, ...members }) + "\n");
const failure = (error) => ({ code: error.code ?? null, message: String(error.message) });
let client = null;

const commands = {
  connect({ tls, options }) {
    const files = tls && {
      protocol: "mqtts",
      ca: fs.readFileSync(tls.roots),
      cert: fs.readFileSync(tls.certificate),
      key: fs.readFileSync(tls.key),
      // An SVID has no host name; the chain is verified.
      checkServerIdentity: () => undefined,
    };
    client = mqtt.connect({ host: "127.0.0.1", protocol: "mqtt", reconnectPeriod: 0, ...files, ...options });
    client.on("connect", (packet) => tell("connect", { present: packet.sessionPresent, properties: packet.properties }));
    client.on("message", (topic, payload, packet) =>
      tell("message", {
        topic,
        payload: payload.toString(),
        qos: packet.qos,
        retain: packet.retain,
        dup: packet.dup,
        user: packet.properties?.userProperties ?? {},
      }),
    );
    client.on("disconnect", (packet) => tell("disconnect", { code: packet.reasonCode }));
    client.on("error", (error) => tell("error", failure(error)));
    client.on("close", () => tell("close"));
  },
  subscribe({ topic, options }) {
    client.subscribe(topic, options, (error, granted) =>
      tell("subscribe", { granted: (granted ?? []).map((each) => each.qos), ...(error ? failure(error) : {}) }),
    );
  },
  publish({ topic, payload, options, number }) {
    client.publish(topic, payload, options, (error, packet) =>
      tell("publish", { number, user: packet?.properties?.userProperties ?? {}, ...(error ? failure(error) : {}) }),
    );
  },
  // The connection is lost without DISCONNECT.
  drop() {
    client.stream.destroy();
  },
  end() {
    client.end(false, () => tell("end"));
  },
};

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const { command, ...members } = JSON.parse(line);
  commands[command](members);
}).on("close", () => process.exit(0));
