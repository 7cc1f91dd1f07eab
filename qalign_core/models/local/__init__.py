"""Language models in this process: a decode engine over rows, and the nets that it drives."""
