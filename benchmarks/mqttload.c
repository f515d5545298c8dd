/*
 * Load for an MQTT 3.1.1 broker over plain TCP, or over mutual TLS for a proxy before it, from one thread, and the CPU
 * time that they spent on it.
 *
 *   mqttload --port N [--tls FOLDER] [--groups LIST] [--mode flow|connects|idle] [--qos 0|1|2] [--clients N]
 *            [--window N] [--payload OCTETS] [--warm SECONDS] [--seconds SECONDS] [--watch PID]...
 *
 * flow      one client publishes to N subscribers; WINDOW messages are in flight at a time: the next one is sent when
 *           the oldest is acknowledged to its publisher and received by all subscribers
 * connects  N clients connect, await CONNACK, disconnect in order, and begin again
 * idle      N clients connect; prints {"ready": N}, and holds them until its standard input ends
 *
 * FOLDER holds chain.pem, key.pem and roots.pem. What happens while warming up is not counted. CPU time is read from the clocks of the watched processes at both ends of
 * the counted time, so that it belongs to exactly what is counted: deliveries, or connections. The result is one line of
 * JSON.
 *
 * Every received octet is verified: topic, payload, quality of service and flags of each message, that each
 * subscriber gets all of them once and in order, and that each acknowledgement is the next one due. Anything else ends
 * the program with status 1.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measuring.h"

#include "channel.h"

enum { READ_SIZE = 256 * 1024, OPENING_AT_ONCE = 32, EVENTS = 256, PATIENCE = 30, PAYLOAD_LIMIT = 60000 };
enum { CONNACK = 0x20, PUBLISH = 0x30, PUBACK = 0x40, PUBREC = 0x50, PUBREL = 0x62, PUBCOMP = 0x70, SUBACK = 0x90 };

/* Of this process: what a proxy still has of an earlier load, whose client is gone, is not delivered to this one. */
static char TOPIC[] = "site/00000000000";

enum mode { FLOW, CONNECTS, IDLE };
enum state { CLOSED, CONNECTING, SHAKING, AWAITING_CONNACK, SUBSCRIBING, READY };

struct client {
    enum state state;
    bool publishes, written;
    int descriptor, number;
    SSL *tls;
    uint64_t next;          /* the message that must come next, or for the publisher the one to be acknowledged next */
    uint64_t next_release;  /* QoS 2: the one whose PUBREL, or for the publisher whose PUBREC, must come next */
    size_t unsent, room;
    unsigned char *out;
    size_t held;            /* octets of an incomplete packet */
    unsigned char *part;
};

static struct {
    int port, clients, qos, window, payload;
    enum mode mode;
    double warm, seconds;
    const char *tls, *groups;
} options = { .clients = 1, .window = 20, .payload = 100, .warm = 0.3, .seconds = 1.5 };

static SSL_CTX *context;
static int events;
static struct sockaddr_in address;
static unsigned char *buffer;
static struct client *clients, **changed;
static int ready, changes;

static bool counting, started;
static uint64_t counted, published, acknowledged, delivered;

static void violation(const char *what)
{
    fprintf(stderr, "load: the broker %s\n", what);
    exit(1);
}

/* ---- sending: packets are collected and written once for all events of a round ------------------------------- */

static void put(struct client *c, const void *octets, size_t size)
{
    if (c->unsent + size > c->room) {
        c->room = (c->unsent + size) * 2;
        c->out = realloc(c->out, c->room);
        if (c->out == NULL)
            fail("memory");
    }
    memcpy(c->out + c->unsent, octets, size);
    c->unsent += size;
    if (!c->written) {
        c->written = true;
        changed[changes++] = c;
    }
}

static void send_all(void)
{
    for (int i = 0; i < changes; i++) {
        struct client *c = changed[i];
        c->written = false;
        if (c->state == CLOSED)
            continue;
        /* The window keeps the octets in flight far below the socket's buffer. */
        for (size_t sent = 0; sent < c->unsent;) {
            int moved = transmit_octets(c->tls, c->descriptor, c->out + sent, c->unsent - sent);
            if (moved <= 0)
                fail("write");
            sent += (size_t)moved;
        }
        c->unsent = 0;
    }
    changes = 0;
}

static void put_answer(struct client *c, unsigned char first, uint64_t identifier)
{
    unsigned char packet[] = { first, 2, identifier >> 8 & 255, identifier & 255 };
    put(c, packet, sizeof packet);
}

static void put_connect(struct client *c)
{
    /* A broker may get the last CONNECT of an earlier run late: it must not take over a session of this one. */
    char name[32];
    int size = snprintf(name, sizeof name, "load-%d-%d", (int)getpid(), c->number);
    unsigned char head[] = { 0x10, (unsigned char)(12 + size), 0, 4, 'M', 'Q', 'T', 'T', 4, 2, 0, 0, 0, (unsigned char)size };
    put(c, head, sizeof head);
    put(c, name, (size_t)size);
}

static void put_subscribe(struct client *c)
{
    unsigned char size = sizeof TOPIC - 1;
    unsigned char head[] = { 0x82, (unsigned char)(size + 5), 0, 1, 0, size }, qos = (unsigned char)options.qos;
    put(c, head, sizeof head);
    put(c, TOPIC, size);
    put(c, &qos, 1);
}

static unsigned char fill(uint64_t message, int position)
{
    return (unsigned char)(message * 31 + (uint64_t)position);
}

/* Messages are numbered from 0; the packet identifier of a message is never 0. */
static uint64_t identifier_of(uint64_t message)
{
    return message % 65535 + 1;
}

static size_t put_length(unsigned char *to, size_t length)
{
    size_t size = 0;
    do {
        to[size] = length & 127;
        length >>= 7;
        if (length)
            to[size] |= 128;
        size++;
    } while (length);
    return size;
}

static void put_publish(struct client *c, uint64_t message)
{
    static unsigned char packet[PAYLOAD_LIMIT + 64];
    size_t topic = sizeof TOPIC - 1, at = 1;
    packet[0] = (unsigned char)(PUBLISH | options.qos << 1);
    at += put_length(packet + 1, 2 + topic + (options.qos ? 2 : 0) + (size_t)options.payload);
    packet[at++] = 0;
    packet[at++] = (unsigned char)topic;
    memcpy(packet + at, TOPIC, topic);
    at += topic;
    if (options.qos) {
        packet[at++] = identifier_of(message) >> 8 & 255;
        packet[at++] = identifier_of(message) & 255;
    }
    memcpy(packet + at, &message, 8);
    for (int i = 8; i < options.payload; i++)
        packet[at + (size_t)i] = fill(message, i);
    put(c, packet, at + (size_t)options.payload);
}

static void publish_more(void)
{
    struct client *publisher = &clients[0];
    uint64_t window = (uint64_t)options.window;
    while (published - delivered / (uint64_t)options.clients < window
           && (options.qos == 0 || published - acknowledged < window))
        put_publish(publisher, published++);
}

/* ---- one connection -------------------------------------------------------------------------------------------- */

static void open_client(struct client *c)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLOUT, .data.ptr = c };
    int on = 1;

    c->descriptor = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->descriptor < 0)
        fail("socket");
    setsockopt(c->descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->state = CONNECTING;
    c->held = c->unsent = 0;
    if (connect(c->descriptor, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS)
        fail("connect");
    if (context != NULL)
        c->tls = tls_client(context, c->descriptor);
    epoll_ctl(events, EPOLL_CTL_ADD, c->descriptor, &event);
}

static void close_client(struct client *c)
{
    if (c->tls != NULL) {
        SSL_shutdown(c->tls);
        SSL_free(c->tls);
        c->tls = NULL;
    }
    close(c->descriptor);
    c->state = CLOSED;
}

/* What a handshake sends fits the socket's buffer, so that it waits for the server alone. */
static void shake(struct client *c)
{
    if (c->tls != NULL) {
        int done = SSL_do_handshake(c->tls);
        if (done != 1) {
            if (SSL_get_error(c->tls, done) != SSL_ERROR_WANT_READ) {
                ERR_print_errors_fp(stderr);
                violation("refused a handshake");
            }
            return;
        }
    }
    c->state = AWAITING_CONNACK;
    put_connect(c);
}

static void connected(struct client *c)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = c };
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(c->descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
        errno = error;
        fail("connect");
    }
    epoll_ctl(events, EPOLL_CTL_MOD, c->descriptor, &event);
    c->state = SHAKING;
    shake(c);
}

static void is_ready(struct client *c)
{
    c->state = READY;
    ready++;
}

static void connack_received(struct client *c, const unsigned char *body, size_t size)
{
    if (size != 2 || body[0] != 0 || body[1] != 0)
        violation("did not accept a connection");
    if (options.mode == FLOW && !c->publishes) {
        c->state = SUBSCRIBING;
        put_subscribe(c);
        return;
    }
    if (options.mode != CONNECTS) {
        is_ready(c);
        return;
    }
    static const unsigned char disconnect[] = { 0xE0, 0 };
    if (transmit_octets(c->tls, c->descriptor, disconnect, sizeof disconnect) != sizeof disconnect)
        fail("write");
    close_client(c);
    counted += counting;
    open_client(c);
}

static void count_delivery(struct client *c)
{
    c->next++;
    delivered++;
    counted += counting;
}

static void publish_received(struct client *c, unsigned char first, const unsigned char *body, size_t size)
{
    size_t topic = sizeof TOPIC - 1, head = 2 + topic + (options.qos ? 2 : 0);
    if (c->publishes || first != (PUBLISH | options.qos << 1) || size != head + (size_t)options.payload || body[0] != 0
        || body[1] != topic || memcmp(body + 2, TOPIC, topic) != 0)
        violation("delivered another message");
    const unsigned char *payload = body + head;
    uint64_t message;
    memcpy(&message, payload, 8);
    uint64_t awaited = options.qos == 2 ? c->next_release : c->next;
    if (message != awaited)
        violation("lost, doubled or reordered a message");
    for (int i = 8; i < options.payload; i++)
        if (payload[i] != fill(message, i))
            violation("altered a payload");
    uint64_t identifier = options.qos ? (uint64_t)body[2 + topic] << 8 | body[3 + topic] : 0;
    if (options.qos && identifier == 0)
        violation("used the packet identifier 0");
    if (options.qos == 2) {
        c->next_release++;
        put_answer(c, PUBREC, identifier);
        return;
    }
    if (options.qos == 1)
        put_answer(c, PUBACK, identifier);
    count_delivery(c);
}

/* Acknowledgements to the publisher come in the order of its messages [MQTT-4.6.0-2, MQTT-4.6.0-3]. */
static void publisher_acknowledged(struct client *c, unsigned char first, uint64_t identifier)
{
    if (options.qos == 2 && first == PUBREC && identifier == identifier_of(c->next_release)) {
        c->next_release++;
        put_answer(c, PUBREL, identifier);
        return;
    }
    if (first != (options.qos == 2 ? PUBCOMP : PUBACK) || identifier != identifier_of(c->next))
        violation("sent an acknowledgement that was not due");
    c->next++;
    acknowledged++;
}

static void packet_received(struct client *c, unsigned char first, const unsigned char *body, size_t size)
{
    if (c->state == AWAITING_CONNACK && first == CONNACK) {
        connack_received(c, body, size);
    } else if (c->state == SUBSCRIBING && first == SUBACK) {
        if (size != 3 || body[2] != options.qos)
            violation("did not grant a subscription");
        is_ready(c);
    } else if (c->state == READY && options.mode == FLOW && (first & 0xF0) == PUBLISH) {
        publish_received(c, first, body, size);
    } else if (c->state == READY && options.mode == FLOW && size == 2) {
        uint64_t identifier = (uint64_t)body[0] << 8 | body[1];
        if (c->publishes) {
            publisher_acknowledged(c, first, identifier);
        } else if (options.qos == 2 && first == PUBREL && c->next < c->next_release) {
            put_answer(c, PUBCOMP, identifier);
            count_delivery(c);
        } else {
            violation("sent a subscriber what was not due");
        }
    } else {
        violation("sent a packet that was not due");
    }
}

/* Handles all complete packets; returns the number of octets left. */
static size_t take(struct client *c, const unsigned char *data, size_t size)
{
    size_t at = 0;
    while (c->state > SHAKING) {
        size_t length = 0, index = 1;
        for (;; index++) {
            if (index > 4)
                violation("sent a length of more than four octets");
            if (at + index >= size)
                return size - at;
            length |= (size_t)(data[at + index] & 127) << (7 * (index - 1));
            if (data[at + index] < 128)
                break;
        }
        if (at + index + 1 + length > size)
            return size - at;
        packet_received(c, data[at], data + at + index + 1, length);
        at += index + 1 + length;
    }
    return 0;
}

static void received(struct client *c, size_t got)
{
    size_t size = c->held + got, left = take(c, buffer, size);
    if (left > PAYLOAD_LIMIT + 64)
        violation("sent a packet that is too long");
    c->held = left;
    if (left) {
        c->part = realloc(c->part, PAYLOAD_LIMIT + 64);
        if (c->part == NULL)
            fail("memory");
        memcpy(c->part, buffer + size - left, left);
    }
}

static void readable(struct client *c)
{
    /* In TLS records may wait inside the library: read until it has no more. */
    while (c->state > SHAKING) {
        if (c->held)
            memcpy(buffer, c->part, c->held);
        int got = receive_octets(c->tls, c->descriptor, buffer + c->held, READ_SIZE - c->held);
        if (got == 0)
            return;
        if (got < 0)
            violation("closed a connection");
        received(c, (size_t)got);
        if (c->tls == NULL)
            return;
    }
}

/* ---- the run --------------------------------------------------------------------------------------------------- */

static void wait_for_events(double seconds)
{
    struct epoll_event found[EVENTS];
    struct timespec longest = { .tv_nsec = (long)((seconds > 0.05 ? 0.05 : seconds) * 1e9) };
    int count = epoll_pwait2(events, found, EVENTS, &longest, NULL);
    for (int i = 0; i < count; i++) {
        struct client *c = found[i].data.ptr;
        if (c->state == CONNECTING)
            connected(c);
        else if (c->state == SHAKING)
            shake(c);
        if (c->state > SHAKING)
            readable(c);
    }
    if (started)
        publish_more();
    send_all();
}

static void run_for(double seconds)
{
    double end = seconds_now() + seconds, left;
    while ((left = end - seconds_now()) > 0)
        wait_for_events(left);
}

static void open_all(int number)
{
    double latest = seconds_now() + PATIENCE + number / 500.0;
    int opened = 0;
    while (ready < number) {
        while (opened < number && opened < ready + OPENING_AT_ONCE)
            open_client(&clients[opened++]);
        wait_for_events(0.05);
        if (seconds_now() > latest)
            violation("was too slow to take all connections");
    }
}

static void hold_idle(void)
{
    open_all(options.clients);
    run_for(options.warm);
    printf("{\"ready\": %d}\n", ready);
    fflush(stdout);
    while (getchar() != EOF)
        ;
}

static void measure(void)
{
    if (options.mode == FLOW) {
        clients[0].publishes = true;
        open_all(options.clients + 1);
        started = true;
    } else {
        for (int i = 0; i < options.clients; i++)
            open_client(&clients[i]);
    }
    run_for(options.warm);
    double began = seconds_now(), latest = began + PATIENCE, spent = watched_seconds();
    counting = true;
    do
        run_for(options.seconds);
    while (counted == 0 && seconds_now() < latest);
    spent = watched_seconds() - spent;
    printf("{\"count\": %llu, \"seconds\": %.6f, \"cpu\": %.6f}\n", (unsigned long long)counted, seconds_now() - began,
           spent);
}

static enum mode mode_named(const char *name)
{
    return strcmp(name, "connects") == 0 ? CONNECTS : strcmp(name, "idle") == 0 ? IDLE : FLOW;
}

static void read_options(int count, char **words)
{
    static const struct option known[] = {
        { "port", required_argument, NULL, 'p' },    { "tls", required_argument, NULL, 't' },
        { "groups", required_argument, NULL, 'g' },  { "mode", required_argument, NULL, 'm' },
        { "qos", required_argument, NULL, 'q' },     { "clients", required_argument, NULL, 'c' },
        { "window", required_argument, NULL, 'n' },  { "payload", required_argument, NULL, 'b' },
        { "warm", required_argument, NULL, 'w' },    { "seconds", required_argument, NULL, 's' },
        { "watch", required_argument, NULL, 'P' },   { NULL, 0, NULL, 0 },
    };
    int option;
    while ((option = getopt_long(count, words, "", known, NULL)) != -1) {
        switch (option) {
        case 'p': options.port = atoi(optarg); break;
        case 't': options.tls = optarg; break;
        case 'g': options.groups = optarg; break;
        case 'm': options.mode = mode_named(optarg); break;
        case 'q': options.qos = atoi(optarg); break;
        case 'c': options.clients = atoi(optarg); break;
        case 'n': options.window = atoi(optarg); break;
        case 'b': options.payload = atoi(optarg); break;
        case 'w': options.warm = atof(optarg); break;
        case 's': options.seconds = atof(optarg); break;
        case 'P': watch(optarg); break;
        default: exit(2);
        }
    }
    if (options.port < 1 || options.port > 65535 || options.clients < 1 || options.window < 1 || options.qos < 0
        || options.qos > 2 || options.payload < 8 || options.payload > PAYLOAD_LIMIT) {
        fprintf(stderr, "load: --port is needed, and no number may be out of its range\n");
        exit(2);
    }
}

int main(int count, char **words)
{
    signal(SIGPIPE, SIG_IGN);
    read_options(count, words);
    snprintf(TOPIC, sizeof TOPIC, "site/%011d", (int)getpid());
    if (options.tls != NULL)
        context = tls_context(options.tls, options.groups);
    address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((unsigned short)options.port) };
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    events = epoll_create1(EPOLL_CLOEXEC);
    buffer = malloc(READ_SIZE);
    clients = calloc((size_t)options.clients + 1, sizeof *clients);
    changed = calloc((size_t)options.clients + 1, sizeof(struct client *));
    if (events < 0 || buffer == NULL || clients == NULL || changed == NULL)
        fail("memory");
    for (int i = 0; i <= options.clients; i++)
        clients[i].number = i;
    if (options.mode == IDLE)
        hold_idle();
    else
        measure();
    return 0;
}
