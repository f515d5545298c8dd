The manager issues the statements of pods at `POST /v1/statement`: node, service account, images with digests and labels as the API server has them,
for a caller that proves its pod by a service account token.
