/* A connection of a load generator: mutual TLS 1.3 by OpenSSL, or plain TCP where there is no SSL object. */
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <unistd.h>

/* The folder holds chain.pem, key.pem and roots.pem; groups may be NULL. */
static SSL_CTX *tls_context(const char *folder, const char *groups)
{
    char chain[1024], key[1024], roots[1024];
    snprintf(chain, sizeof chain, "%s/chain.pem", folder);
    snprintf(key, sizeof key, "%s/key.pem", folder);
    snprintf(roots, sizeof roots, "%s/roots.pem", folder);
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (context == NULL || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1
        || SSL_CTX_load_verify_locations(context, roots, NULL) != 1
        || SSL_CTX_use_certificate_chain_file(context, chain) != 1
        || SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1
        || (groups != NULL && SSL_CTX_set1_groups_list(context, groups) != 1)) {
        ERR_print_errors_fp(stderr);
        exit(1);
    }
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_RELEASE_BUFFERS);
    return context;
}

static SSL *tls_client(SSL_CTX *context, int descriptor)
{
    SSL *tls = SSL_new(context);
    SSL_set_fd(tls, descriptor);
    SSL_set_connect_state(tls);
    return tls;
}

/* Both return the number of octets moved, 0 where the connection must wait, -1 at its end. */
static int receive_octets(SSL *tls, int descriptor, void *buffer, size_t room)
{
    if (tls == NULL) {
        ssize_t got = read(descriptor, buffer, room);
        return got > 0 ? (int)got : got < 0 && errno == EAGAIN ? 0 : -1;
    }
    int got = SSL_read(tls, buffer, (int)room);
    if (got > 0)
        return got;
    return SSL_get_error(tls, got) == SSL_ERROR_WANT_READ ? 0 : -1;
}

static int transmit_octets(SSL *tls, int descriptor, const void *data, size_t size)
{
    if (tls == NULL) {
        ssize_t sent = write(descriptor, data, size);
        return sent > 0 ? (int)sent : sent < 0 && errno == EAGAIN ? 0 : -1;
    }
    int sent = SSL_write(tls, data, (int)size);
    if (sent > 0)
        return sent;
    return SSL_get_error(tls, sent) == SSL_ERROR_WANT_WRITE ? 0 : -1;
}
