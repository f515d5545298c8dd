Inbound requests carry `X-Forwarded-Proto: https`. `Forwarded`, `X-Forwarded-*`, `X-Real-IP` and similar fields of clients no longer reach the application, in any spelling.
