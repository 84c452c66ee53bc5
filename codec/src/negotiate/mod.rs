//! Content negotiation: Accept and Content-Type.
