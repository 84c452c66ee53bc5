//! How etcd is reached: TLS, users and their rights. With real members of etcd.

#![allow(clippy::disallowed_methods)] // plain threads, no async code

mod common;

use std::time::{Duration, Instant};

use common::{program, Authority, Members, CLUSTER};
use plinth_journal::{Error, Founding, Journal, Position};
use plinth_journal_etcd::{EtcdJournal, EtcdOptions, Tls, User};

/// What a journal says about etcd that it cannot use: when it is connected, or at the first call.
fn complaint(options: &EtcdOptions) -> Error {
    match EtcdJournal::connect(options, CLUSTER, Founding::Allowed) {
        Ok(journal) => journal.end().unwrap_err(),
        Err(error) => error,
    }
}

/// The outcome of a call once a member has answered it: on a busy machine its time may be over before.
fn answered<T>(mut call: impl FnMut() -> plinth_journal::Result<T>) -> plinth_journal::Result<T> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match call() {
            Err(Error::Unavailable { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(50));
            }
            outcome => return outcome,
        }
    }
}

#[test]
fn certificates_are_checked_on_both_sides() {
    let Some(program) = program() else { return };
    let members = Members::with_tls(program, 1);
    let journal = members.connect();
    assert_eq!(journal.append("over TLS".into()).unwrap(), Position::new(1));

    let stranger = Authority::new();
    let options = |tls| EtcdOptions { tls, ..members.options() };
    let trusted = members.authority().client();
    let of_another =
        Tls { certificate_authority: stranger.client().certificate_authority, ..trusted.clone() };
    let error = complaint(&options(Some(of_another)));
    assert!(error.to_string().contains("invalid peer certificate"), "{error}");
    let without_certificate = Tls { identity: None, ..trusted.clone() };
    // With TLS 1.3 the refusal comes after the handshake, and may be lost with the connection.
    let foreign = Tls { identity: stranger.client().identity, ..trusted };
    for unknown in [without_certificate, foreign] {
        let refused = || match complaint(&options(Some(unknown.clone()))) {
            Error::Denied { message } => Err::<(), _>(Error::Refused { message }),
            error => Err(error),
        };
        let error = answered(refused).unwrap_err();
        assert!(
            matches!(&error, Error::Refused { message } if message.contains("clientCertificateFile")),
            "{error}"
        );
    }
    complaint(&options(None));
    // Only the date differs from one that is accepted.
    let (dated, expired) = (members.authority().dated_client(4000), members.authority().dated_client(2025));
    members.connect_with(&options(Some(dated))).end().unwrap();
    complaint(&options(Some(expired)));
    let garbage = Tls { certificate_authority: b"no PEM".to_vec(), identity: None };
    assert!(matches!(complaint(&options(Some(garbage))), Error::Refused { .. }));

    assert_eq!(members.connect().end().unwrap(), Position::new(1));
}

#[test]
fn a_user_needs_the_right_to_the_prefix_and_root_to_trim() {
    let Some(program) = program() else { return };
    let members = Members::start(program, 1);
    let journal = members.connect();
    journal.append("before users".into()).unwrap();
    let call = |path: &str, body: &str| members.call(path, body, None);
    for user in ["root", "replica", "stranger"] {
        call("auth/user/add", &format!(r#"{{"name":"{user}","password":"secret of {user}"}}"#));
    }
    for (user, role) in [("root", "root"), ("replica", "journal")] {
        call("auth/role/add", &format!(r#"{{"name":"{role}"}}"#));
        call("auth/user/grant", &format!(r#"{{"user":"{user}","role":"{role}"}}"#));
    }
    // `plinth/` up to `plinth0`.
    let permission = r#"{"name":"journal","perm":{"permType":"READWRITE","key":"cGxpbnRoLw==","range_end":"cGxpbnRoMA=="}}"#;
    call("auth/role/grant", permission);
    call("auth/enable", "{}");

    let with = |user: Option<(&str, &str)>| {
        let user = user.map(|(name, password)| User { name: name.to_owned(), password: password.to_owned() });
        EtcdOptions { user, ..members.options() }
    };
    let allowed = members.connect_with(&with(Some(("replica", "secret of replica"))));
    assert_eq!(allowed.append("with a user".into()).unwrap(), Position::new(2));
    allowed.append("another".into()).unwrap();
    let refused = allowed.trim(Position::new(2)).unwrap_err();
    assert!(matches!(&refused, Error::Refused { message } if message.contains("root")), "{refused}");
    members.connect_with(&with(Some(("root", "secret of root")))).trim(Position::new(2)).unwrap();
    let mut reader = allowed.read(Position::new(2)).unwrap();
    assert_eq!(reader.next(Duration::from_secs(5)).unwrap().unwrap().bytes, "with a user");

    for user in [
        None,
        Some(("replica", "a guess")),
        Some(("nobody", "secret")),
        Some(("stranger", "secret of stranger")),
    ] {
        let error = answered(|| Err::<(), _>(complaint(&with(user)))).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{user:?}: {error}");
    }
    assert_eq!(answered(|| allowed.end()), Ok(Position::new(3)));

    // A password that is changed while the journal is used is waited for.
    let text = call("auth/authenticate", r#"{"name":"root","password":"secret of root"}"#);
    let (_, root) = text.split_once(r#""token":""#).unwrap();
    let root = root.split('"').next().unwrap();
    let set_password = |password: &str| {
        let body = format!(r#"{{"name":"replica","password":"{password}"}}"#);
        members.call("auth/user/changepw", &body, Some(root));
    };
    set_password("another");
    for error in
        [answered(|| allowed.append("refused".into())).unwrap_err(), answered(|| allowed.end()).unwrap_err()]
    {
        assert!(matches!(&error, Error::Denied { message } if message.contains("password")), "{error}");
        assert!(error.is_transient(), "it is waited for");
    }
    set_password("secret of replica");
    assert_eq!(answered(|| allowed.append("with the password".into())), Ok(Position::new(4)));

    // So is a right that is revoked.
    let change_right = |change: &str, field: &str| {
        let body = format!(r#"{{"{field}":"replica","role":"journal"}}"#);
        members.call(&format!("auth/user/{change}"), &body, Some(root));
    };
    change_right("revoke", "name");
    for error in
        [answered(|| allowed.append("refused".into())).unwrap_err(), answered(|| allowed.end()).unwrap_err()]
    {
        assert!(matches!(&error, Error::Denied { message } if message.contains("permission")), "{error}");
    }
    change_right("grant", "user");
    assert_eq!(answered(|| allowed.append("with the right".into())), Ok(Position::new(5)));

    // A token that etcd does not know any more, as after its restart, is replaced.
    let mut members = members;
    members.kill(0);
    members.restart(0);
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = allowed.append("after a restart".into()) {
        assert!(error.is_transient() && Instant::now() < deadline, "{error}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A member whose certificate is not trusted, or another program at its address, while the others serve.
#[test]
fn a_member_that_cannot_be_used_is_passed_over() {
    let Some(program) = program() else { return };
    let members = Members::with_tls(program, 1);
    members.connect().append("a record".into()).unwrap();
    let stranger = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = stranger.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for connection in stranger.incoming() {
            let _ = std::io::Write::write_all(&mut connection.unwrap(), b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let mut options = members.options();
    options.members.insert(0, address.clone());
    let journal = EtcdJournal::connect(&options, CLUSTER, Founding::Forbidden).unwrap();
    for n in 2..6 {
        assert_eq!(journal.append("a record".into()), Ok(Position::new(n)));
    }
    // Where there is no other it is refused with the reason.
    let alone = EtcdOptions { members: vec![address], ..options };
    let refused = EtcdJournal::connect(&alone, CLUSTER, Founding::Allowed).map(|_| ()).unwrap_err();
    assert!(matches!(&refused, Error::Refused { message } if message.contains("TLS with")), "{refused}");
}

/// An address in the list leads to another etcd, as after it was given to another machine.
#[test]
fn a_member_of_another_etcd_is_passed_over() {
    let Some(program) = program() else { return };
    let (mut own, other) = (Members::start(program.clone(), 2), Members::start(program, 1));
    own.connect();
    // It holds a journal of the same cluster of replicas, and as many records. It is asked first.
    let elsewhere = other.connect();
    let mut options = other.options();
    options.members.push(own.address(0));
    // One against one: neither is believed.
    let journal = EtcdJournal::connect(&options, CLUSTER, Founding::Forbidden).unwrap();
    let error = journal.append("a record".into()).unwrap_err();
    assert!(
        matches!(&error, Error::Unavailable { message } if message.contains("different journals")),
        "{error}"
    );
    options.members.push(own.address(1));
    let journal = EtcdJournal::connect(&options, CLUSTER, Founding::Forbidden).unwrap();
    for n in 1..8 {
        assert_eq!(journal.append("a record".into()), Ok(Position::new(n)));
    }
    own.kill(0);
    for _ in 0..5 {
        let error = journal.append("a record".into()).unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
    assert_eq!(elsewhere.end(), Ok(Position::ZERO), "nothing was written there");
}
