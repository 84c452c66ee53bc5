use parking_lot::Mutex;

use super::*;

/// Allows the listed permissions: `verb group/resource[/subresource] [namespace/]name`, `*` for any name.
struct Rules(Vec<&'static str>, Mutex<Vec<String>>);

impl AccessChecker for Rules {
    async fn require(&self, attributes: &Attributes<'_>) -> Result<(), ApiError> {
        let question = match attributes.target {
            Target::Path(path) => format!("{} {path}", attributes.verb),
            Target::Resource(r) => {
                let subresource =
                    if r.subresource.is_empty() { String::new() } else { format!("/{}", r.subresource) };
                let namespace =
                    if r.namespace.is_empty() { String::new() } else { format!("{}/", r.namespace) };
                format!("{} {}/{}{subresource} {namespace}{}", attributes.verb, r.group, r.resource, r.name)
            }
        };
        let allowed = self.0.contains(&question.as_str());
        self.1.lock().push(question);
        match allowed {
            true => Ok(()),
            false => Err(denied(attributes, &Reason::None)),
        }
    }
}

fn sender(node: Option<&str>) -> User {
    let mut user = User::new("system:serviceaccount:kube-system:agent", &["system:authenticated"]);
    if let Some(node) = node {
        user.extra.insert("authentication.kubernetes.io/node-name".into(), vec![node.into()]);
    }
    user
}

fn checks(
    rules: &[&'static str],
    sender: &User,
    wanted: &User,
) -> (Result<Arc<User>, ApiError>, Vec<String>) {
    let checker = Rules(rules.to_vec(), Mutex::default());
    let pods =
        ResourceTarget { version: "v1", resource: "pods", namespace: "default", ..ResourceTarget::default() };
    let attributes = Attributes::resource(sender, "list", pods);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let outcome = runtime.block_on(impersonate(&checker, &attributes, wanted));
    let user = outcome.map(|impersonated| {
        // The last check is the one that allowed it.
        let last = checker.1.lock().last().cloned().unwrap_or_default();
        let verb = last.split(' ').next().unwrap_or_default();
        let expected = match verb.strip_prefix("impersonate-on:") {
            Some(rest) => format!("impersonate:{}", rest.rsplit_once(':').unwrap().0),
            None if verb == "impersonate" => String::new(),
            None => verb.to_owned(),
        };
        assert_eq!(impersonated.constraint, expected, "{last}");
        impersonated.user
    });
    (user, checker.1.into_inner())
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(name.parse::<hyper::header::HeaderName>().unwrap(), value.parse().unwrap());
    }
    headers
}

#[test]
fn headers_by_table() {
    let user = |name: &str| User { name: name.into(), ..User::default() };
    assert_eq!(requested(&headers(&[])).unwrap(), None);
    assert_eq!(requested(&headers(&[("impersonate-user", "")])).unwrap(), None);
    assert_eq!(requested(&headers(&[("impersonate-user", "jane")])).unwrap(), Some(user("jane")));
    let all = headers(&[
        ("impersonate-user", "jane"),
        ("impersonate-uid", "u"),
        ("impersonate-group", "a"),
        ("impersonate-group", "b"),
        ("impersonate-extra-acme.io%2fscopes", "x"),
        ("impersonate-extra-acme.io%2fscopes", "y"),
    ]);
    let expected = User {
        uid: "u".into(),
        groups: vec!["a".into(), "b".into()],
        extra: BTreeMap::from([("acme.io/scopes".into(), vec!["x".into(), "y".into()])]),
        ..user("jane")
    };
    assert_eq!(requested(&all).unwrap(), Some(expected));
    let rows = [
        (
            ("impersonate-group", "a"),
            r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"a"}, Extra:map[string][]string(nil)} without impersonating a user name"#,
        ),
        (
            ("impersonate-uid", "u"),
            r#"requested &user.DefaultInfo{Name:"", UID:"u", Groups:[]string(nil), Extra:map[string][]string(nil)} without impersonating a user name"#,
        ),
        (
            ("impersonate-extra-k", "v"),
            r#"requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string(nil), Extra:map[string][]string{"k":[]string{"v"}}} without impersonating a user name"#,
        ),
    ];
    for (header, message) in rows {
        let error = requested(&headers(&[header])).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (400, message));
    }
}

#[test]
fn the_old_verb_allows_what_it_names() {
    // rules, requested user, groups of the resulting user
    let jane = |groups: &[&str]| User::new("jane", groups);
    let rows: &[(&[&'static str], User, Option<&[&str]>)] = &[
        (&["impersonate /users jane"], jane(&[]), Some(&["system:authenticated"])),
        (&["impersonate /users joe"], jane(&[]), None),
        (&["impersonate /users jane"], jane(&["dev"]), None),
        (
            &["impersonate /users jane", "impersonate /groups dev"],
            jane(&["dev"]),
            Some(&["dev", "system:authenticated"]),
        ),
        (
            &["impersonate /users jane", "impersonate /groups system:masters"],
            jane(&["system:masters"]),
            Some(&["system:masters", "system:authenticated"]),
        ),
        (
            &["impersonate /users jane", "impersonate /groups system:unauthenticated"],
            jane(&["system:unauthenticated"]),
            Some(&["system:unauthenticated"]),
        ),
        (
            &["impersonate /users system:anonymous"],
            User::new("system:anonymous", &[]),
            Some(&["system:unauthenticated"]),
        ),
        (
            &["impersonate /serviceaccounts ns/sa"],
            User::new("system:serviceaccount:ns:sa", &[]),
            Some(&["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]),
        ),
        (
            &["impersonate /users jane", "impersonate authentication.k8s.io/uids u"],
            User { uid: "u".into(), ..jane(&[]) },
            Some(&["system:authenticated"]),
        ),
        (
            &["impersonate /users jane", "impersonate authentication.k8s.io/userextras/k v"],
            User { extra: BTreeMap::from([("k".into(), vec!["v".into()])]), ..jane(&[]) },
            Some(&["system:authenticated"]),
        ),
        (
            &["impersonate /users jane", "impersonate authentication.k8s.io/userextras/k v"],
            User { extra: BTreeMap::from([("k".into(), vec!["v".into(), "w".into()])]), ..jane(&[]) },
            None,
        ),
    ];
    for (rules, wanted, groups) in rows {
        let (outcome, _) = checks(rules, &sender(None), wanted);
        match groups {
            Some(groups) => {
                let user = outcome.unwrap();
                assert_eq!(
                    (user.name.as_str(), &user.groups[..]),
                    (wanted.name.as_str(), &groups.iter().map(|g| (*g).to_owned()).collect::<Vec<_>>()[..])
                );
                assert_eq!((&user.uid, &user.extra), (&wanted.uid, &wanted.extra));
            }
            None => assert_eq!(outcome.unwrap_err().code, 403, "{rules:?}"),
        }
    }
}

#[test]
fn constrained_forms_ask_for_the_request_and_for_the_user() {
    let node = User::new("system:node:n1", &[]);
    let rows: &[(&[&'static str], User, User, &[&str])] = &[
        (
            &[
                "impersonate-on:associated-node:list /pods default/",
                "impersonate:associated-node authentication.k8s.io/nodes *",
            ],
            sender(Some("n1")),
            node.clone(),
            &["system:nodes", "system:authenticated"],
        ),
        (
            &[
                "impersonate-on:arbitrary-node:list /pods default/",
                "impersonate:arbitrary-node authentication.k8s.io/nodes n1",
            ],
            sender(Some("n2")),
            node.clone(),
            &["system:nodes", "system:authenticated"],
        ),
        (
            &[
                "impersonate-on:serviceaccount:list /pods default/",
                "impersonate:serviceaccount authentication.k8s.io/serviceaccounts ns/sa",
            ],
            sender(None),
            User::new("system:serviceaccount:ns:sa", &[]),
            &["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
        ),
        (
            &[
                "impersonate-on:user-info:list /pods default/",
                "impersonate:user-info authentication.k8s.io/users jane",
                "impersonate:user-info authentication.k8s.io/groups *",
            ],
            sender(None),
            User::new("jane", &["a", "b", "c", "d"]),
            &["a", "b", "c", "d", "system:authenticated"],
        ),
    ];
    for (rules, sender, wanted, groups) in rows {
        let (outcome, _) = checks(rules, sender, wanted);
        assert_eq!(outcome.unwrap().groups, *groups, "{rules:?}");
        for (i, _) in rules.iter().enumerate() {
            let mut fewer = rules.to_vec();
            fewer.remove(i);
            assert_eq!(checks(&fewer, sender, wanted).0.unwrap_err().code, 403, "without {}", rules[i]);
        }
    }
}

#[test]
fn denials_name_the_first_form_that_applied() {
    let (outcome, asked) = checks(&[], &sender(None), &User::new("jane", &[]));
    assert_eq!(
        outcome.unwrap_err().message,
        "pods is forbidden: User \"system:serviceaccount:kube-system:agent\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    assert_eq!(asked, ["impersonate-on:user-info:list /pods default/", "impersonate /users jane"]);
    let on = "impersonate-on:user-info:list /pods default/";
    let rows: &[(&[&'static str], User, &str)] = &[
        (&[on], User::new("jane", &[]), "users.authentication.k8s.io \"jane\" is forbidden: User \"system:serviceaccount:kube-system:agent\" cannot impersonate:user-info resource \"users\" in API group \"authentication.k8s.io\" at the cluster scope"),
        (&[on, "impersonate:user-info authentication.k8s.io/users jane"], User::new("jane", &["system:masters"]), "groups.authentication.k8s.io \"system:masters\" is forbidden: User \"system:serviceaccount:kube-system:agent\" cannot impersonate:user-info resource \"groups\" in API group \"authentication.k8s.io\" at the cluster scope: impersonating the system:masters group is not allowed"),
    ];
    for (rules, wanted, message) in rows {
        assert_eq!(checks(rules, &sender(None), wanted).0.unwrap_err().message, *message);
    }
    let extra = |key: &str, value: &str| User {
        extra: BTreeMap::from([(key.to_owned(), vec![value.to_owned()])]),
        ..User::new("jane", &[])
    };
    for (key, value, ok) in
        [("acme.io/k", "v", true), ("k", "v", false), ("acme.io/k", "", false), ("-/k", "v", false)]
    {
        assert_eq!(extra_error(&extra(key, value).extra).is_none(), ok, "{key}={value}");
    }
}

#[test]
fn names_are_utf8_or_refused() {
    for name in ["impersonate-user", "impersonate-uid", "impersonate-group", "impersonate-extra-scope"] {
        let mut all = headers(&[]);
        all.insert("impersonate-user", HeaderValue::from_bytes("jörg".as_bytes()).unwrap());
        assert_eq!(requested(&all).unwrap().unwrap().name, "jörg");
        all.insert(name, HeaderValue::from_bytes(b"j\xf6rg").unwrap());
        assert_eq!(requested(&all).unwrap_err().code, 400, "{name}");
    }
}
