"""Jobs of Horovod as a tf.data service: some processes prepare the data, others train with them."""
