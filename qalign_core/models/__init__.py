"""Language models behind the `LanguageModel` protocol."""
