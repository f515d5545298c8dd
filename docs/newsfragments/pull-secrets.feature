Pods with an injected proxy name the Secrets of `images.pullSecrets`, so that the image of the proxy can be pulled from a registry with passwords.
