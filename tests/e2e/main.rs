//! End-to-end tests: the real binary, real clients, one folder for each subject. See the harness
//! (`plinth_tests`) for how servers are started.
//!
//! | folder | subject |
//! |---|---|
//! | [`admission`] | admission plugins, admission policies |
//! | [`audit`] | audit policy, events, backends |
//! | [`authentication`] | certificates, tokens, OpenID Connect, impersonation |
//! | [`authorization`] | RBAC, nodes, access reviews |
//! | [`controllers`] | the built-in controllers; a real kube-controller-manager and kube-scheduler |
//! | [`custom_resources`] | definitions and their objects |
//! | [`egress`] | connections that the server opens: kubelets, webhooks |
//! | [`hostile`] | hostile clients |
//! | [`kinds`] | every built-in kind, discovery, OpenAPI |
//! | [`kubectl`] | flows of a real kubectl |
//! | [`migration`] | moving in from etcd and out again |
//! | [`monitoring`] | metrics, their documents, pages for operators, the log of requests |
//! | [`process`] | flags, start and stop, files that the program creates |
//! | [`reading`] | get, list, watch |
//! | [`remote_apis`] | APIs that other API servers serve, behind APIServices |
//! | [`requests`] | protocols, codes, bad input, flow control |
//! | [`storage`] | durability, damage, backup, repair, encryption |
//! | [`writing`] | create, update, patch, subresources |

#![allow(clippy::too_many_lines, reason = "tables of tests")]

mod admission;
mod audit;
mod authentication;
mod authorization;
mod controllers;
mod custom_resources;
mod egress;
mod hostile;
mod kinds;
mod kubectl;
mod migration;
mod monitoring;
mod process;
mod reading;
mod remote_apis;
mod requests;
mod storage;
mod writing;
