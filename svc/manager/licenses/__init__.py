"""What the licenses of the cluster are worth: the object ``SvcLicenseStatus``."""
