# shellcheck shell=bash
# Certificates of a kube-apiserver on loopback, by openssl.

# make_pki DIR: the authority of a kube-apiserver, its serving certificate, the key of its tokens.
make_pki() {
  local pki=$1
  mkdir -p "$pki"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 7 -subj /CN=kubernetes \
    -keyout "$pki/ca.key" -out "$pki/ca.crt" 2>/dev/null
  openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out "$pki/sa.key" 2>/dev/null
  issue "$pki" apiserver /CN=kube-apiserver \
    'subjectAltName=IP:127.0.0.1,IP:10.0.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc'
  issue "$pki" front-proxy /CN=front-proxy extendedKeyUsage=clientAuth
}
# issue DIR NAME SUBJECT EXTENSION: NAME.crt and NAME.key.
issue() {
  local pki=$1 name=$2 subject=$3 extension=$4
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$subject" -keyout "$pki/$name.key" \
    -out "$pki/$name.csr" 2>/dev/null
  openssl x509 -req -in "$pki/$name.csr" -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -CAcreateserial -days 7 \
    -extfile <(printf '%s\n' "$extension") -out "$pki/$name.crt" 2>/dev/null
}
