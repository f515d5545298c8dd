"""The container images of the project, made without a container registry: ``python -m images --output DIR``."""
