An unknown key of a configuration or a policy is refused with the key that was perhaps meant.
