//! Name rules: DNS labels and subdomains, label keys and values.
