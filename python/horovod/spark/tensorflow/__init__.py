"""Jobs on Spark for TensorFlow."""
