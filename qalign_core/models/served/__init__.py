"""Language models on servers, over HTTP."""
