# mitmproxy as a reverse proxy: mitmproxy.sh BIN PORT BACKEND-PORT FOLDER, FOLDER holding both.pem.
# It asks clients for certificates and does not verify their chains, so it has less to do than the others.
set -eu
exec "$1/mitmdump" --quiet --mode "reverse:http://127.0.0.1:$3" --listen-host 127.0.0.1 --listen-port "$2" \
    --set confdir="$4/mitmproxy" --set certs="*=$4/both.pem" --set request_client_cert=true \
    --set tls_version_client_min=TLS1_3 --set http2=false --set flow_detail=0 \
    --modify-headers '/~q/X-Forwarded-Client-Cert/URI=spiffe:\/\/bench.example'
