"""LSTM, GRU and RNN, in float32 and quantized."""
