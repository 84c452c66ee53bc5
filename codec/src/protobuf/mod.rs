//! Kubernetes protobuf: envelope, objects, lists, watch frames.
