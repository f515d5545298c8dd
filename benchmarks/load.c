/*
 * Load for a proxy behind mutual TLS, from one thread, and the CPU time that the proxy spent on it.
 *
 *   load --port N [--tls FOLDER] [--groups LIST] [--mode requests|connects|idle] [--connections N]
 *        [--path PATH] [--size OCTETS] [--warm SECONDS] [--seconds SECONDS] [--watch PID]...
 *
 * requests  each connection sends a request, reads the whole answer, and sends the next one
 * connects  each connection is closed in order after one answer, and a new one is opened
 * idle      opens all connections, says {"ready": N}, and holds them until its standard input ends
 *
 * FOLDER holds chain.pem, key.pem and roots.pem; without it the load is plain TCP. What happens while warming up is not
 * counted; in mode requests it begins when all connections are open. A machine that is so busy that no answer comes in
 * SECONDS gets more of them. CPU time is read from the clocks of the watched processes at both ends of the counted time,
 * so that it belongs to exactly the answers that are counted. The result is one line of JSON.
 *
 * Answers must have a Content-Length, with --size the given one; anything else, any status but 200, and octets behind an
 * answer are errors and are counted as such.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measuring.h"

#include "channel.h"

enum { HEAD_LIMIT = 8192, READ_SIZE = 256 * 1024, HANDSHAKES_AT_ONCE = 32, EVENTS = 256, PATIENCE = 15 };

enum mode { REQUESTS, CONNECTS, IDLE };
enum state { CLOSED, CONNECTING, SHAKING, WAITING, AT_REST };

struct connection {
    enum state state;
    int descriptor;
    bool wants_write;
    SSL *tls;
    size_t unsent;          /* octets of the request that are still to be sent */
    double began;           /* when the request, or in mode connects the connection, began */
    size_t head_size;       /* octets of the head gathered so far */
    bool in_body;
    unsigned long long left;/* octets of the body still to come */
    char head[HEAD_LIMIT + 1];
};

static struct {
    int port, connections;
    enum mode mode;
    double warm, seconds;
    long long size;         /* octets that each body must have; -1 for any */
    const char *tls, *groups, *path;
} options = { .connections = 32, .warm = 0.3, .seconds = 1.5, .size = -1, .path = "/" };

static SSL_CTX *context;
static int events;
static struct sockaddr_in address;
static char request[2048];
static size_t request_size;
static char *buffer;

static bool counting;
static unsigned long long answers, octets, errors, established;
static double *latencies;
static size_t latency_count, latency_room;

static void note_latency(double seconds)
{
    if (latency_count == latency_room) {
        latency_room = latency_room ? latency_room * 2 : 1 << 16;
        latencies = realloc(latencies, latency_room * sizeof *latencies);
        if (latencies == NULL)
            fail("memory");
    }
    latencies[latency_count++] = seconds;
}

static int compared(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double quantile(double part)
{
    return latency_count ? latencies[(size_t)((latency_count - 1) * part)] : 0;
}

/* ---- one connection -------------------------------------------------------------------------------------------- */

static void watch_writing(struct connection *c, bool wanted)
{
    struct epoll_event event = { .events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.ptr = c };
    if (c->wants_write == wanted)
        return;
    c->wants_write = wanted;
    epoll_ctl(events, EPOLL_CTL_MOD, c->descriptor, &event);
}

static void open_connection(struct connection *c)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLOUT, .data.ptr = c };
    int on = 1;

    c->descriptor = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->descriptor < 0)
        fail("socket");
    setsockopt(c->descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->state = CONNECTING;
    c->wants_write = true;
    c->unsent = c->head_size = 0;
    c->in_body = false;
    c->began = seconds_now();
    if (connect(c->descriptor, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS)
        fail("connect");
    if (context != NULL)
        c->tls = tls_client(context, c->descriptor);
    epoll_ctl(events, EPOLL_CTL_ADD, c->descriptor, &event);
}

static void close_connection(struct connection *c)
{
    if (c->state == CLOSED)
        return;
    c->state = CLOSED;
    if (c->tls != NULL) {
        SSL_shutdown(c->tls);
        SSL_free(c->tls);
        c->tls = NULL;
    }
    close(c->descriptor);
}

static void give_up(struct connection *c, const char *why)
{
    if (errors++ == 0) {
        fprintf(stderr, "load: %s\n", why);
        ERR_print_errors_fp(stderr);
    }
    ERR_clear_error();
    close_connection(c);
    if (options.mode == IDLE)
        exit(1);
    if (errors > 100) {
        fprintf(stderr, "load: too many errors\n");
        exit(1);
    }
    open_connection(c);
}

static void send_rest(struct connection *c)
{
    while (c->unsent > 0) {
        int sent = transmit_octets(c->tls, c->descriptor, request + request_size - c->unsent, c->unsent);
        if (sent < 0) {
            give_up(c, "the connection ended while sending");
            return;
        }
        if (sent == 0)
            break;
        c->unsent -= (size_t)sent;
    }
    watch_writing(c, c->unsent > 0);
}

static void send_request(struct connection *c)
{
    c->state = WAITING;
    c->unsent = request_size;
    if (options.mode != CONNECTS)
        c->began = seconds_now();
    send_rest(c);
}

static void got_answer(struct connection *c)
{
    if (counting) {
        answers++;
        note_latency(seconds_now() - c->began);
    }
    c->head_size = 0;
    c->in_body = false;
    if (options.mode == CONNECTS) {
        close_connection(c);
        open_connection(c);
    } else {
        send_request(c);
    }
}

/* Reads the head in c->head; false where it is not the expected one. */
static bool judge_head(struct connection *c)
{
    if (strncmp(c->head, "HTTP/1.1 200 ", 13) != 0)
        return false;
    const char *length = strcasestr(c->head, "\r\ncontent-length:");
    if (length == NULL)
        return false;
    c->left = strtoull(length + strlen("\r\ncontent-length:"), NULL, 10);
    c->in_body = true;
    return options.size < 0 || c->left == (unsigned long long)options.size;
}

/* Takes octets of one answer; a closed-loop client never has two under way. */
static void take(struct connection *c, const char *data, size_t size)
{
    if (counting)
        octets += size;
    if (!c->in_body) {
        size_t before = c->head_size;
        size_t room = HEAD_LIMIT - before, used = size < room ? size : room;
        memcpy(c->head + before, data, used);
        c->head_size += used;
        c->head[c->head_size] = 0;
        const char *end = memmem(c->head, c->head_size, "\r\n\r\n", 4);
        if (end == NULL) {
            if (c->head_size == HEAD_LIMIT)
                give_up(c, "the head of an answer is too long");
            return;
        }
        size_t head = (size_t)(end + 4 - c->head);
        c->head[head] = 0;
        if (!judge_head(c)) {
            c->head[strcspn(c->head, "\r")] = 0;
            fprintf(stderr, "load: answered %s\n", c->head);
            give_up(c, "unexpected answer");
            return;
        }
        data += head - before;
        size -= head - before;
    }
    if (size > c->left) {
        give_up(c, "octets follow an answer");
        return;
    }
    c->left -= size;
    if (c->left == 0)
        got_answer(c);
}

static void shake(struct connection *c)
{
    if (c->tls != NULL) {
        int done = SSL_do_handshake(c->tls);
        if (done != 1) {
            int why = SSL_get_error(c->tls, done);
            if (why == SSL_ERROR_WANT_READ)
                watch_writing(c, false);
            else if (why == SSL_ERROR_WANT_WRITE)
                watch_writing(c, true);
            else
                give_up(c, "the handshake failed");
            return;
        }
    }
    established++;
    watch_writing(c, false);
    if (options.mode == IDLE)
        c->state = AT_REST;
    else
        send_request(c);
}

static void happened(struct connection *c, unsigned what)
{
    if (c->state == CONNECTING) {
        int error = 0;
        socklen_t size = sizeof error;
        getsockopt(c->descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error != 0) {
            errno = error;
            fail("connect");
        }
        c->state = SHAKING;
    }
    if (c->state == SHAKING) {
        shake(c);
        return;
    }
    if ((what & EPOLLOUT) && c->unsent > 0)
        send_rest(c);
    /* In TLS records may wait inside the library: read until it has no more. */
    while (c->state == WAITING || c->state == AT_REST) {
        int got = receive_octets(c->tls, c->descriptor, buffer, READ_SIZE);
        if (got == 0)
            return;
        if (got < 0) {
            give_up(c, "the connection ended early");
            return;
        }
        enum state before = c->state;
        take(c, buffer, (size_t)got);
        if (c->state != before || (c->tls == NULL && got < READ_SIZE))
            return;
    }
}

/* ---- the run --------------------------------------------------------------------------------------------------- */

static void wait_for_events(double seconds)
{
    struct epoll_event found[EVENTS];
    struct timespec longest = { .tv_nsec = (long)((seconds > 0.05 ? 0.05 : seconds) * 1e9) };
    int count = epoll_pwait2(events, found, EVENTS, &longest, NULL);
    for (int i = 0; i < count; i++)
        happened(found[i].data.ptr, found[i].events);
}

static void run_for(double seconds)
{
    double end = seconds_now() + seconds, left;
    while ((left = end - seconds_now()) > 0)
        wait_for_events(left);
}

static void hold_idle(struct connection *connections)
{
    int opened = 0;
    while (established < (unsigned long long)options.connections) {
        while (opened < options.connections && (unsigned long long)opened < established + HANDSHAKES_AT_ONCE)
            open_connection(&connections[opened++]);
        wait_for_events(0.05);
    }
    /* What servers send behind a handshake belongs to it. */
    run_for(options.warm);
    printf("{\"ready\": %llu}\n", established);
    fflush(stdout);
    while (getchar() != EOF)
        ;
}

static void measure(struct connection *connections)
{
    for (int i = 0; i < options.connections; i++)
        open_connection(&connections[i]);
    double latest = seconds_now() + PATIENCE;
    while (options.mode == REQUESTS && established < (unsigned long long)options.connections && seconds_now() < latest)
        wait_for_events(0.05);
    run_for(options.warm);
    double began = seconds_now(), spent = watched_seconds();
    counting = true;
    do
        run_for(options.seconds);
    while (answers == 0 && seconds_now() < latest);
    spent = watched_seconds() - spent;
    double elapsed = seconds_now() - began;
    qsort(latencies, latency_count, sizeof *latencies, compared);
    printf("{\"answers\": %llu, \"octets\": %llu, \"seconds\": %.6f, \"cpu\": %.6f, \"errors\": %llu, "
           "\"p50\": %.9f, \"p90\": %.9f, \"p99\": %.9f}\n",
           answers, octets, elapsed, spent, errors, quantile(.5), quantile(.9), quantile(.99));
}

static void read_options(int count, char **words)
{
    static const struct option known[] = {
        { "port", required_argument, NULL, 'p' },    { "tls", required_argument, NULL, 't' },
        { "groups", required_argument, NULL, 'g' },  { "mode", required_argument, NULL, 'm' },
        { "connections", required_argument, NULL, 'c' }, { "path", required_argument, NULL, 'u' },
        { "warm", required_argument, NULL, 'w' },    { "seconds", required_argument, NULL, 's' },
        { "watch", required_argument, NULL, 'P' },   { "size", required_argument, NULL, 'b' },
        { NULL, 0, NULL, 0 },
    };
    int option;
    while ((option = getopt_long(count, words, "", known, NULL)) != -1) {
        switch (option) {
        case 'p': options.port = atoi(optarg); break;
        case 't': options.tls = optarg; break;
        case 'g': options.groups = optarg; break;
        case 'c': options.connections = atoi(optarg); break;
        case 'u': options.path = optarg; break;
        case 'b': options.size = atoll(optarg); break;
        case 'w': options.warm = atof(optarg); break;
        case 's': options.seconds = atof(optarg); break;
        case 'P': watch(optarg); break;
        case 'm':
            options.mode = strcmp(optarg, "connects") == 0 ? CONNECTS : strcmp(optarg, "idle") == 0 ? IDLE : REQUESTS;
            break;
        default: exit(2);
        }
    }
    if (options.port < 1 || options.port > 65535 || options.connections < 1) {
        fprintf(stderr, "load: --port and at least one connection are needed\n");
        exit(2);
    }
}

int main(int count, char **words)
{
    signal(SIGPIPE, SIG_IGN);
    read_options(count, words);
    if (options.tls != NULL)
        context = tls_context(options.tls, options.groups);
    request_size = (size_t)snprintf(request, sizeof request,
                                    "GET %s HTTP/1.1\r\nHost: service.example:8443\r\nUser-Agent: load/1\r\n"
                                    "Accept: */*\r\nX-Request-Id: 2f1c7a55-9d0e-4c38-b6a1-0d6f3f1b7e11\r\n\r\n",
                                    options.path);
    address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((unsigned short)options.port) };
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    events = epoll_create1(EPOLL_CLOEXEC);
    buffer = malloc(READ_SIZE);
    struct connection *connections = calloc((size_t)options.connections, sizeof *connections);
    if (events < 0 || buffer == NULL || connections == NULL)
        fail("memory");
    if (options.mode == IDLE)
        hold_idle(connections);
    else
        measure(connections);
    return 0;
}
