//! The service Auth: users, roles, permissions and tokens, with etcd's rules and errors.

use bytes::Bytes;
use tonic::Status;

use crate::auth::{is_valid_range, Auth, QueueKey, State, Tokens, ROOT};
use crate::errors;
use crate::permitted::Permitted;
use crate::wire::auth::{
    permission_type, AuthStatusResponse, AuthenticateRequest, AuthenticateResponse, ChangePasswordRequest,
    GrantPermissionRequest, NameRequest, NamesResponse, Permission, RevokePermissionRequest, Role,
    RoleGetResponse, User, UserAddRequest, UserRoleRequest,
};
use crate::wire::HeaderResponse;

/// How often a password is checked while users are being changed.
const ATTEMPTS: usize = 8;
/// Bytes of a password that bcrypt takes.
const LONGEST_PASSWORD: usize = 72;

/// What a change of users and roles leads to.
enum Change {
    /// These, at the next revision.
    Next(State),
    /// These, at the same one.
    Same(State),
    /// Nothing has changed.
    None,
}

type Changed = Result<HeaderResponse, Status>;

/// Ends the tokens of users that were deleted or have another password.
fn end_tokens(tokens: &Tokens, before: &State, after: &State) {
    if !after.enabled {
        tokens.end_all();
        return;
    }
    for (name, user) in &before.users {
        if after.users.get(name).is_none_or(|after| after.password != user.password) {
            tokens.end_of(name);
        }
    }
}

/// The next state: what `edit` makes of a copy.
fn next(state: &State, edit: impl FnOnce(&mut State) -> Result<(), Status>) -> Result<Change, Status> {
    let mut after = state.clone();
    edit(&mut after)?;
    Ok(Change::Next(after))
}

impl Permitted {
    /// Changes users and roles, durably, and waits for what was permitted before. `plan` is given what is
    /// there; the user must be root. The response is a header.
    async fn change(self, plan: impl FnOnce(&State) -> Result<Change, Status> + Send + 'static) -> Changed {
        // Whoever is not root does not make others wait.
        self.check_root()?;
        // To its end, whether or not the client waits: memory and disk are changed together.
        let changed = tokio::spawn(async move {
            let auth = &self.member.auth;
            let _one_at_a_time = auth.changing.lock().await;
            self.check_root()?;
            let before = auth.state();
            let mut after = match plan(&before)? {
                Change::None => return Ok(self.header()),
                Change::Same(after) => after,
                Change::Next(mut after) => {
                    after.revision = before.revision.saturating_add(1);
                    after
                }
            };
            let stored = self.member.transact(after.change_from(&before)).await;
            stored.map_err(|error| errors::from_engine(&error))?;
            after.permit();
            auth.publish(after).await;
            // What callers that have left have queued.
            self.member.barrier().await?;
            end_tokens(&auth.tokens, &before, &auth.state());
            Ok(self.header())
        });
        changed.await.map_err(errors::from_task)?
    }

    fn header(&self) -> HeaderResponse {
        HeaderResponse { header: Some(self.member.header()) }
    }

    /// The method `AuthStatus` of the service `Auth`.
    pub(crate) fn auth_status(&self) -> Result<AuthStatusResponse, Status> {
        self.member.auth.caller(&self.credentials)?;
        let state = self.member.auth.state();
        Ok(AuthStatusResponse {
            header: Some(self.member.header()),
            enabled: state.enabled,
            auth_revision: state.revision,
        })
    }

    /// The method `AuthEnable` of the service `Auth`.
    pub(crate) async fn enable_auth(self) -> Changed {
        self.change(|state| {
            if state.enabled {
                return Ok(Change::None);
            }
            if !state.users.contains_key(ROOT) {
                return Err(errors::root_user_missing());
            }
            if !state.is_root(ROOT) {
                return Err(errors::root_role_missing());
            }
            Ok(Change::Same(State { enabled: true, ..state.clone() }))
        })
        .await
    }

    /// The method `AuthDisable` of the service `Auth`.
    pub(crate) async fn disable_auth(self) -> Changed {
        self.change(|state| match state.enabled {
            true => Ok(Change::Next(State { enabled: false, ..state.clone() })),
            false => Ok(Change::None),
        })
        .await
    }

    /// Authenticate: a token for a name and a password.
    pub(crate) async fn authenticate(
        self,
        request: AuthenticateRequest,
    ) -> Result<AuthenticateResponse, Status> {
        let auth = &self.member.auth;
        let AuthenticateRequest { name, password } = request;
        let password = hashed_part(password);
        for _ in 0..ATTEMPTS {
            let state = auth.state();
            if !state.enabled {
                return Err(errors::auth_not_enabled());
            }
            let user = state.users.get(&name).ok_or_else(errors::auth_failed)?;
            if user.options.is_some_and(|options| options.no_password) {
                return Err(errors::no_password_user());
            }
            let queue = QueueKey::Login(self.credentials.peer);
            if !auth.verify(queue, &password, &user.password).await? {
                tracing::info!(user = name, "password is not that of the user");
                return Err(errors::auth_failed());
            }
            // Neither the password nor the user has changed meanwhile, nor does before the token is there: a
            // change ends the tokens of before.
            let _unchanged = auth.shared().await;
            if auth.state().revision == state.revision {
                let token = auth.tokens.issue(&name, state.revision)?;
                return Ok(AuthenticateResponse { header: Some(self.member.header()), token });
            }
        }
        Err(errors::old_auth_revision())
    }

    /// The method `UserAdd` of the service `Auth`.
    pub(crate) async fn add_user(self, request: UserAddRequest) -> Changed {
        let auth = &self.member.auth;
        auth.check_root(&self.credentials)?;
        let options = request.options.unwrap_or_default();
        let password = match options.no_password {
            true => Bytes::new(),
            false => auth.hash(QueueKey::Change(self.credentials.peer), request.password).await?,
        };
        let name = request.name;
        self.change(move |state| {
            if name.is_empty() {
                return Err(errors::user_empty());
            }
            if state.users.contains_key(&name) {
                return Err(errors::user_exists());
            }
            next(state, |after| {
                let stored = Bytes::from(name.clone().into_bytes());
                let user = User { name: stored, password, roles: Vec::new(), options: Some(options) };
                after.users.insert(name, user);
                Ok(())
            })
        })
        .await
    }

    /// UserGet: the roles of a user, for root and for the user.
    pub(crate) fn get_user(&self, request: &NameRequest) -> Result<NamesResponse, Status> {
        let caller = self.member.auth.caller(&self.credentials)?;
        match self.member.auth.check_root_caller(&caller) {
            Err(refused) if *caller.name != request.name => return Err(refused),
            _ => {}
        }
        let state = self.member.auth.state();
        let user = state.users.get(&request.name).ok_or_else(errors::user_not_found)?;
        Ok(NamesResponse { header: Some(self.member.header()), names: user.roles.clone() })
    }

    /// The method `UserList` of the service `Auth`.
    pub(crate) fn users(&self) -> Result<NamesResponse, Status> {
        self.member.auth.check_root(&self.credentials)?;
        let names = self.member.auth.state().users.keys().cloned().collect();
        Ok(NamesResponse { header: Some(self.member.header()), names })
    }

    /// The method `UserDelete` of the service `Auth`.
    pub(crate) async fn delete_user(self, request: NameRequest) -> Changed {
        self.change(move |state| {
            if state.enabled && request.name == ROOT {
                return Err(errors::invalid_auth_management());
            }
            next(state, |after| {
                after.users.remove(&request.name).map(drop).ok_or_else(errors::user_not_found)
            })
        })
        .await
    }

    /// The method `UserChangePassword` of the service `Auth`.
    pub(crate) async fn change_password(self, request: ChangePasswordRequest) -> Changed {
        let auth = &self.member.auth;
        auth.check_root(&self.credentials)?;
        // An empty one is nobody's, as in etcd.
        let password = match request.password.is_empty() {
            true => Bytes::new(),
            false => auth.hash(QueueKey::Change(self.credentials.peer), request.password).await?,
        };
        let name = request.name;
        self.change(move |state| {
            next(state, |after| {
                let user = after.users.get_mut(&name).ok_or_else(errors::user_not_found)?;
                let has_none = user.options.is_some_and(|options| options.no_password);
                user.password = if has_none { Bytes::new() } else { password };
                Ok(())
            })
        })
        .await
    }

    /// The method `UserGrantRole` of the service `Auth`.
    pub(crate) async fn grant_role(self, request: UserRoleRequest) -> Changed {
        self.change(move |state| {
            let user = state.users.get(&request.user).ok_or_else(errors::user_not_found)?;
            if request.role != ROOT && !state.roles.contains_key(&request.role) {
                return Err(errors::role_not_found());
            }
            if user.roles.contains(&request.role) {
                return Ok(Change::None);
            }
            next(state, |after| {
                let user = after.users.get_mut(&request.user).ok_or_else(errors::user_not_found)?;
                user.roles.push(request.role);
                user.roles.sort();
                Ok(())
            })
        })
        .await
    }

    /// The method `UserRevokeRole` of the service `Auth`.
    pub(crate) async fn revoke_role(self, request: UserRoleRequest) -> Changed {
        self.change(move |state| {
            if state.enabled && request.user == ROOT && request.role == ROOT {
                return Err(errors::invalid_auth_management());
            }
            next(state, |after| {
                let user = after.users.get_mut(&request.user).ok_or_else(errors::user_not_found)?;
                let before = user.roles.len();
                user.roles.retain(|role| *role != request.role);
                match user.roles.len() < before {
                    true => Ok(()),
                    false => Err(errors::role_not_granted()),
                }
            })
        })
        .await
    }

    /// The method `RoleAdd` of the service `Auth`.
    pub(crate) async fn add_role(self, request: NameRequest) -> Changed {
        self.change(move |state| {
            let name = request.name;
            if name.is_empty() {
                return Err(errors::role_empty());
            }
            if state.roles.contains_key(&name) {
                return Err(errors::role_exists());
            }
            next(state, |after| {
                let stored = Bytes::from(name.clone().into_bytes());
                after.roles.insert(name, Role { name: stored, permissions: Vec::new() });
                Ok(())
            })
        })
        .await
    }

    /// RoleGet: the permissions of a role, for root and for who has it.
    pub(crate) fn get_role(&self, request: &NameRequest) -> Result<RoleGetResponse, Status> {
        let caller = self.member.auth.caller(&self.credentials)?;
        let state = self.member.auth.state();
        let has_it = state.users.get(&*caller.name).is_some_and(|user| user.roles.contains(&request.name));
        match self.member.auth.check_root_caller(&caller) {
            Err(refused) if !has_it => return Err(refused),
            _ => {}
        }
        let role = state.roles.get(&request.name).ok_or_else(errors::role_not_found)?;
        let permissions = match request.name == ROOT {
            true => vec![Permission {
                perm_type: permission_type::READWRITE,
                key: Bytes::new(),
                range_end: Bytes::from_static(&[0]),
            }],
            false => role.permissions.clone(),
        };
        Ok(RoleGetResponse { header: Some(self.member.header()), permissions })
    }

    /// The method `RoleList` of the service `Auth`.
    pub(crate) fn roles(&self) -> Result<NamesResponse, Status> {
        self.member.auth.check_root(&self.credentials)?;
        let names = self.member.auth.state().roles.keys().cloned().collect();
        Ok(NamesResponse { header: Some(self.member.header()), names })
    }

    /// RoleDelete: takes it from its users, too.
    pub(crate) async fn delete_role(self, request: NameRequest) -> Changed {
        self.change(move |state| {
            if state.enabled && request.name == ROOT {
                return Err(errors::invalid_auth_management());
            }
            next(state, |after| {
                after.roles.remove(&request.name).ok_or_else(errors::role_not_found)?;
                after.users.values_mut().for_each(|user| user.roles.retain(|role| *role != request.name));
                Ok(())
            })
        })
        .await
    }

    /// RoleGrantPermission: a permission for a range, or another one for the same range.
    pub(crate) async fn grant_permission(self, request: GrantPermissionRequest) -> Changed {
        self.change(move |state| {
            let permission = request.permission.ok_or_else(errors::permission_not_given)?;
            if !is_valid_range(&permission.key, &permission.range_end) {
                return Err(errors::invalid_auth_management());
            }
            next(state, |after| {
                let role = after.roles.get_mut(&request.name).ok_or_else(errors::role_not_found)?;
                let is_same = |other: &Permission| {
                    (&other.key, &other.range_end) == (&permission.key, &permission.range_end)
                };
                role.permissions.retain(|other| !is_same(other));
                role.permissions.push(permission);
                role.permissions
                    .sort_by(|one, other| (&one.key, &one.range_end).cmp(&(&other.key, &other.range_end)));
                Ok(())
            })
        })
        .await
    }

    /// The method `RoleRevokePermission` of the service `Auth`.
    pub(crate) async fn revoke_permission(self, request: RevokePermissionRequest) -> Changed {
        self.change(move |state| {
            next(state, |after| {
                let role = after.roles.get_mut(&request.role).ok_or_else(errors::role_not_found)?;
                let before = role.permissions.len();
                role.permissions
                    .retain(|other| (&other.key, &other.range_end) != (&request.key, &request.range_end));
                match role.permissions.len() < before {
                    true => Ok(()),
                    false => Err(errors::permission_not_granted()),
                }
            })
        })
        .await
    }
}

/// What bcrypt takes of a password. That is all that is held of one while others are hashed.
fn hashed_part(password: String) -> Vec<u8> {
    let mut password = password.into_bytes();
    password.truncate(LONGEST_PASSWORD);
    password.shrink_to_fit();
    password
}

impl Auth {
    /// The hash of a password.
    async fn hash(&self, queue: QueueKey, password: String) -> Result<Bytes, Status> {
        if password.len() > LONGEST_PASSWORD {
            return Err(errors::password_too_long());
        }
        let cost = self.options.bcrypt_cost;
        match self.with_processor(queue, move || bcrypt::hash(password, cost)).await? {
            Ok(hash) => Ok(hash.into_bytes().into()),
            Err(error) => Err(Status::unknown(error.to_string())),
        }
    }

    /// Whether a hash is that of a password.
    async fn verify(&self, queue: QueueKey, password: &[u8], hash: &Bytes) -> Result<bool, Status> {
        let (password, hash) = (password.to_owned(), hash.clone());
        self.with_processor(queue, move || {
            let hash = std::str::from_utf8(&hash).unwrap_or_default();
            // An error stands for a hash that is none, which no password has.
            bcrypt::verify(password, hash).unwrap_or(false)
        })
        .await
    }

    /// Runs what takes long, a few at a time. It counts until it has ended, also when its client has left.
    async fn with_processor<T: Send + 'static>(
        &self,
        queue: QueueKey,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        let one_of_few = self.hashing.acquire(queue).await?;
        let worked = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(one_of_few);
            done
        });
        worked.await.map_err(errors::from_task)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::auth::{most_at_once, Credentials};
    use crate::member::Member;

    const SHORT: Duration = Duration::from_millis(200);

    /// A store with a user of a password, where requests need a user, and nobody as its client.
    async fn guarded(bcrypt_cost: u32) -> (tempfile::TempDir, Permitted) {
        let dir = tempfile::tempdir().unwrap();
        let member = Arc::new(Member::of_test(dir.path(), bcrypt_cost));
        let nobody = Permitted { member, credentials: Credentials::default() };
        let user = |name: &str| UserAddRequest {
            name: name.to_owned(),
            password: "secret".to_owned(),
            options: None,
        };
        nobody.clone().add_user(user(ROOT)).await.unwrap();
        let role = UserRoleRequest { user: ROOT.to_owned(), role: ROOT.to_owned() };
        nobody.clone().grant_role(role).await.unwrap();
        nobody.clone().enable_auth().await.unwrap();
        (dir, nobody)
    }

    fn login(password: &str) -> AuthenticateRequest {
        AuthenticateRequest { name: ROOT.to_owned(), password: password.to_owned() }
    }

    async fn root(nobody: &Permitted) -> Permitted {
        let token = nobody.clone().authenticate(login("secret")).await.unwrap().token;
        let credentials = Credentials { token: Some(token.into()), ..Credentials::default() };
        Permitted { credentials, ..nobody.clone() }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn whoever_is_not_root_does_not_keep_others_waiting() {
        let (_dir, nobody) = guarded(4).await;
        let _reading = nobody.member.auth.shared().await;
        let request = NameRequest { name: ROOT.to_owned() };
        let refused = timeout(SHORT, nobody.clone().delete_user(request)).await;
        assert_eq!(refused.expect("it does not wait").unwrap_err().message(), errors::user_empty().message());
        assert!(timeout(SHORT, nobody.member.auth.shared()).await.is_ok());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_change_waits_for_what_was_permitted_and_nobody_waits_for_a_change() {
        let (_dir, nobody) = guarded(4).await;
        let root = root(&nobody).await;
        let auth = &nobody.member.auth;
        let permitted = auth.shared().await;
        let revision = auth.state().revision;
        let role = |name: &str| NameRequest { name: name.to_owned() };
        let mut changed = tokio::spawn(root.clone().add_role(role("a")));
        while auth.state().revision == revision {
            tokio::task::yield_now().await;
        }
        assert!(
            timeout(SHORT, &mut changed).await.is_err(),
            "something is carried out that was permitted before"
        );
        // What comes now is permitted by the new roles, at once.
        let later = timeout(SHORT, auth.shared()).await.expect("it does not wait");
        assert!(timeout(SHORT, root.clone().authenticate(login("secret"))).await.is_ok());
        drop(permitted);
        changed.await.unwrap().unwrap();
        // And the next change waits for that.
        let mut changed = tokio::spawn(root.add_role(role("b")));
        assert!(timeout(SHORT, &mut changed).await.is_err());
        drop(later);
        changed.await.unwrap().unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn few_passwords_are_hashed_at_a_time_whoever_waits_for_them() {
        let (_dir, nobody) = guarded(12).await;
        for _ in 0..most_at_once() {
            let mut attempt = Box::pin(nobody.clone().authenticate(login("wrong")));
            assert!(timeout(Duration::from_millis(10), &mut attempt).await.is_err());
            // The client leaves.
        }
        assert_eq!(nobody.member.auth.hashing.usage(), (most_at_once(), 0));
    }

    #[test]
    fn little_is_held_of_a_long_password() {
        let held = hashed_part("x".repeat(1 << 20));
        assert_eq!((held.len(), held.capacity()), (LONGEST_PASSWORD, LONGEST_PASSWORD));
        assert_eq!(hashed_part("short".to_owned()), b"short");
    }
}
