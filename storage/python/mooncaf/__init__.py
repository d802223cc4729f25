"""mooncaf's object store: `from mooncaf.store import MooncakeDistributedStore, ReplicateConfig`."""
