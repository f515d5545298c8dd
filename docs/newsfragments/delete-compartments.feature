`svc delete` names objects of other compartments and asks before it deletes them, and `svc describe` highlights compartments on a terminal ([compartments](docs/compartments.md#delete)).
