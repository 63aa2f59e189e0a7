"""OpenAI's API for text: requests and answers, as `edgewise serve` and pages have them."""
