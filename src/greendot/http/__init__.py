"""HTTP framework: operations, problem documents, scopes, OpenAPI.

Routes are in the `http` module of each capability.
"""
