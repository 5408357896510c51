//! Tensors as JSON in requests and answers.
