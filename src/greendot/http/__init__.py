"""HTTP framework: operations, problem documents, scopes, OpenAPI. Routes: the `http` module of each capability."""
