//! Authorization as a server requests it: requests with the SubjectAccessReviews that kube-apiserver sends
//! for them and the codes that it answers, recorded once and replayed here without it.
//!
//! | module | subject |
//! |---|---|
//! | [`recording`] | the text format of `tests/access_reviews/*.txt` |
//! | [`webhook`] | an authorization webhook that records reviews and denies the one that it should |
//! | [`client`] | HTTP/1.1 that sends what it is given, without cleaning paths or headers |
//! | [`replay`] | a recording's requests, put to a server |
//! | [`front_proxy`] | the authority and certificate with which a client names the user of each request |
//! | [`upstream`] | a kube-apiserver and an etcd given by their paths |

pub mod client;
pub mod front_proxy;
pub mod recording;
pub mod replay;
pub mod upstream;
pub mod webhook;
