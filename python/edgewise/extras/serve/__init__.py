"""Models behind an HTTP endpoint of OpenAI's form, as llama.cpp, vLLM and Ollama have it.

    options: limits and addresses
    refusals: errors in OpenAI's format
    requests: fields of requests, and their checks (those for text are in logic/openai)
    detokenize: text of tokens as they come
    catalog: the models that are served, by name
    jobs: the bounded queue and the thread that computes
    generation, embeddings, tensors: work of that thread for a request
    app, launch: routes and the server

Needs `pip install edgewise[serve,text]`. Only app and launch import the HTTP libraries.
"""
