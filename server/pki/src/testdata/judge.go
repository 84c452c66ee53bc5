// Makes certificate requests that readers of PEM and of names disagree about, and judges each as kube-apiserver does
// (kubernetes pkg/apis/certificates, ParseCSR). A line for each:
//
//	{"name": ..., "text": base64, "outcome": what Go's encoding/pem and crypto/x509 make of it}
//
//	go run judge.go judged-key.pem > judged.json
package main

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"strings"
)

const label = "CERTIFICATE REQUEST"

var key *ecdsa.PrivateKey

func tlv(tag byte, parts ...[]byte) []byte {
	var body []byte
	for _, part := range parts {
		body = append(body, part...)
	}
	out := []byte{tag}
	switch n := len(body); {
	case n < 0x80:
		out = append(out, byte(n))
	case n < 0x100:
		out = append(out, 0x81, byte(n))
	default:
		out = append(out, 0x82, byte(n>>8), byte(n))
	}
	return append(out, body...)
}

func sequence(parts ...[]byte) []byte { return tlv(0x30, parts...) }
func set(parts ...[]byte) []byte      { return tlv(0x31, parts...) }

var (
	commonName       = []byte{6, 3, 0x55, 4, 3}
	organization     = []byte{6, 3, 0x55, 4, 10}
	uid              = []byte{6, 9, 0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53, 2}
	email            = []byte{6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 9, 1}
	challenge        = []byte{6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 9, 7}
	extensionRequest = []byte{6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 9, 14}
	alternativeNames = []byte{6, 3, 0x55, 29, 17}
	ecdsaSHA256      = []byte{0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2}
)

const utf8 = 0x0c

func attribute(kind []byte, tag byte, value string) []byte {
	return sequence(kind, tlv(tag, []byte(value)))
}

func cn(value string) []byte { return attribute(commonName, utf8, value) }
func o(value string) []byte  { return attribute(organization, utf8, value) }

// A name of these relative distinguished names, each a SET that is encoded already.
func name(sets ...[]byte) []byte { return sequence(sets...) }

func of(tag byte, value string) []byte {
	return name(set(attribute(organization, tag, value)), set(cn("jane")))
}

func named(tag byte, value string) []byte {
	return name(set(cn("jane")), set(attribute(commonName, tag, value)))
}

func wide(text string, bytes int) string {
	var out strings.Builder
	for _, c := range []byte(text) {
		out.WriteString(strings.Repeat("\x00", bytes-1))
		out.WriteByte(c)
	}
	return out.String()
}

func extensions(values ...string) []byte {
	var list []byte
	for _, value := range values {
		list = append(list, sequence(alternativeNames, tlv(4, []byte(value)))...)
	}
	return sequence(extensionRequest, set(sequence(list)))
}

func dns(value string) string { return string(sequence(tlv(0x82, []byte(value)))) }

// A request with that subject and these attributes, properly signed.
func request(subject []byte, attributes ...[]byte) string {
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	check(err)
	info := sequence(tlv(2, []byte{0}), subject, public, tlv(0xa0, attributes...))
	digest := sha256.Sum256(info)
	signature, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	check(err)
	der := sequence(info, ecdsaSHA256, tlv(3, []byte{0}, signature))
	return string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}))
}

func block(begin, body, end string) string {
	return "-----BEGIN " + begin + "-----\n" + body + "\n-----END " + end + "-----\n"
}

func body(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[1:len(lines)-1], "\n")
}

func replace(text, old, new string) string {
	if !strings.Contains(text, old) {
		panic("nothing to replace: " + old)
	}
	return strings.Replace(text, old, new, 1)
}

func layouts(emit func(name, text string)) {
	jane := request(name(set(o("dev")), set(cn("jane"))))
	masters := request(name(set(o("system:masters")), set(cn("mallory"))))
	janeBody, mastersBody, trimmed := body(jane), body(masters), strings.TrimSpace(jane)
	all := func(new string) string { return strings.ReplaceAll(jane, "\n", new) }
	emit("plain", jane)
	emit("plain, and forbidden", masters)
	emit("carriage returns", all("\r\n"))
	emit("blanks at the ends of lines", all(" \t\n"))
	emit("blanks in lines", replace(jane, "\nMI", "\n M\tI"))
	emit("blank lines around", "\n \n"+jane+"\n\t\n")
	emit("no line break at the end", trimmed)
	emit("carriage return at the end", trimmed+"\r")
	emit("two carriage returns", all("\r\r\n"))
	emit("carriage returns alone", all("\r"))
	emit("one line of base64", block(label, strings.ReplaceAll(janeBody, "\n", ""), label))
	emit("two blocks", jane+masters)
	emit("two blocks, the other order", masters+jane)
	emit("first block of another type", block("X", mastersBody, "X")+jane)
	emit("first block is a certificate", block("CERTIFICATE", janeBody, "CERTIFICATE")+masters)
	emit("old label", strings.ReplaceAll(jane, label, "NEW "+label))
	emit("first block with another end", block(label, janeBody, "X")+masters)
	emit("first block is not base64", block(label, "!!!!", label)+masters)
	emit("first block is cut", "-----BEGIN "+label+"-----\n"+janeBody+"\n"+masters)
	emit("first block without an end", "-----BEGIN "+label+"-----\n"+masters)
	emit("first beginning followed by text", replace(jane, "-----\n", "----- x\n")+masters)
	emit("first end followed by text", trimmed+" x\n"+masters)
	emit("first beginning indented", " "+jane+masters)
	emit("first beginning behind text", "x "+jane+masters)
	emit("first beginning behind a carriage return", "x\r"+jane+masters)
	emit("first end behind text", replace(jane, "\n-----END", " -----END")+masters)
	emit("first block is empty", block(label, "", label)+masters)
	emit("first block without a label", block("", janeBody, "")+masters)
	emit("headers", block(label, "K: v\n\n"+janeBody, label))
	emit("headers that hold a beginning", block(label, "K: -----BEGIN "+label+"-----\n"+mastersBody, label)+jane)
	emit("headers that go on", block(label, "K: v\n w\n\n"+janeBody, label)+masters)
	emit("headers and nothing else", block(label, "K: v", label)+masters)
	emit("text before", "Subject: O=system:masters\n"+jane)
	emit("text after", jane+"text\n")
	emit("byte order mark", "\ufeff"+jane+masters)
	emit("a block within", block(label, masters, label))
	emit("dashes before", "-----\n"+jane)
	emit("an end before", "-----END "+label+"-----\n"+jane)
	emit("padding within", block(label, janeBody[:63]+"=\n"+mastersBody, label))
	emit("last bits", block(label, "MAB=", label)+masters)
	emit("nothing", "")
	emit("DER", "0\x00")
}

func nodes(emit func(name, text string)) {
	group, one, other := o("system:nodes"), cn("system:node:n1"), cn("system:node:n2")
	n1, n2 := request(name(set(group), set(one))), request(name(set(group), set(other)))
	emit("its own", n1)
	emit("another's", n2)
	emit("two names, its own last", request(name(set(group), set(other), set(one))))
	emit("two names, its own first", request(name(set(group), set(one), set(other))))
	emit("two names in one", request(name(set(group, one, other))))
	emit("an empty one between", request(name(set(group), set(one), set(), set(other))))
	emit("a name of a type that is not read", request(name(set(group), set(one), set(attribute(commonName, 0x1c, wide("x", 4))))))
	emit("another's behind an end that is another's", replace(n1, "-----END ", "-----END X ")+n2)
	emit("another's behind a beginning followed by text", replace(n1, "-----\n", "----- x\n")+n2)
	emit("another's behind an end followed by text", strings.TrimSpace(n1)+" x\n"+n2)
	emit("two blocks", n1+n2)
}

func subjects(emit func(name, text string)) {
	const masters = "system:masters"
	jane := name(set(o("dev")), set(cn("jane")))
	for _, row := range []struct {
		name    string
		subject []byte
	}{
		{"nothing", name()},
		{"plain", jane},
		{"two names", name(set(cn("system:node:a")), set(cn("system:node:b")))},
		{"two names in one", name(set(cn("b"), cn("a")))},
		{"two organizations in one", name(set(o("x"), o(masters)), set(cn("a")))},
		{"two organizations", name(set(o("x")), set(o("y")), set(cn("a")), set(o("x")))},
		{"name and organization in one", name(set(cn("a"), o(masters)))},
		{"an empty one first", name(set(), set(o(masters)), set(cn("a")))},
		{"an empty one between", name(set(cn("a")), set(), set(o(masters)), set(cn("b")))},
		{"an empty one last", name(set(cn("a")), set())},
		{"an empty name last", name(set(cn("a")), set(cn("")))},
		{"an empty organization", name(set(o("")), set(cn("a")))},
		{"a UID", name(set(cn("a")), set(attribute(uid, utf8, "u")))},
		{"PrintableString", of(0x13, masters)},
		{"PrintableString of the group dev", of(0x13, "dev")},
		{"IA5String", of(0x16, masters)},
		{"IA5String of the group dev", of(0x16, "dev")},
		{"NumericString", of(0x12, "007")},
		{"T61String", of(0x14, masters)},
		{"T61String beyond ASCII", of(0x14, "gr\xfcn")},
		{"BMPString", of(0x1e, wide(masters, 2))},
		{"BMPString of the group dev", of(0x1e, wide("dev", 2))},
		{"BMPString with an end", of(0x1e, wide(masters+"\x00", 2))},
		{"BMPString that is odd", of(0x1e, "\x00a\x00")},
		{"UniversalString", of(0x1c, wide(masters, 4))},
		{"VisibleString", of(0x1a, masters)},
		{"GeneralString", of(0x1b, masters)},
		{"GraphicString", of(0x19, masters)},
		{"OCTET STRING", of(0x04, masters)},
		{"BIT STRING", of(0x03, "\x00"+masters)},
		{"INTEGER", of(0x02, "\x01")},
		{"a name of type T61String", named(0x14, "admin")},
		{"a name of type BMPString", named(0x1e, wide("admin", 2))},
		{"a name of type UniversalString", named(0x1c, wide("admin", 4))},
		{"a name of type VisibleString", named(0x1a, "admin")},
		{"a name of type OCTET STRING", named(0x04, "admin")},
		{"UTF8String that is none", of(utf8, "gr\xfcn")},
		{"UTF8String with NUL", of(utf8, masters+"\x00.example")},
		{"PrintableString that is none", of(0x13, "a@b")},
		{"PrintableString with more", of(0x13, "*&")},
		{"IA5String that is none", of(0x16, "\xfc")},
		{"e-mail address", name(set(attribute(email, 0x16, "a@b")), set(cn("a")))},
		{"all types", name(
			set(attribute([]byte{6, 3, 0x55, 4, 6}, 0x13, "CH")), set(attribute([]byte{6, 3, 0x55, 4, 8}, utf8, "ZH")),
			set(attribute([]byte{6, 3, 0x55, 4, 7}, utf8, "Z")), set(attribute([]byte{6, 3, 0x55, 4, 9}, utf8, "street")),
			set(attribute([]byte{6, 3, 0x55, 4, 17}, utf8, "8000")), set(o("dev")),
			set(attribute([]byte{6, 3, 0x55, 4, 11}, utf8, "unit")), set(cn("a")),
			set(attribute([]byte{6, 3, 0x55, 4, 5}, 0x13, "1")))},
		{"a third member of an attribute", name(set(sequence(organization, tlv(utf8, []byte("dev")), tlv(5))), set(cn("a")))},
		{"a type that is not DER", name(set(attribute([]byte{6, 4, 0x80, 0x55, 4, 10}, utf8, masters)), set(cn("a")))},
		{"bytes behind", append(append([]byte{}, jane...), 5, 0)},
	} {
		emit(row.name, request(row.subject))
	}
}

func attributes(emit func(name, text string)) {
	jane := name(set(o("dev")), set(cn("jane")))
	a, b := dns("a.example"), dns("b.example")
	names := func(text string, parts ...[]byte) { emit(text, request(jane, parts...)) }
	names("none")
	names("names", extensions(a))
	names("names twice", extensions(a, b))
	names("extensions twice", extensions(a), extensions(b))
	names("a name with NUL", extensions(dns("a\x00.b")))
	names("a name with a blank", extensions(dns("a b")))
	names("a name that is empty", extensions(dns("")))
	names("a name beyond ASCII", extensions(dns("\xfc")))
	names("an address of three bytes", extensions(string(sequence(tlv(0x87, []byte{1, 2, 3})))))
	names("addresses", extensions(string(sequence(tlv(0x87, []byte{10, 0, 0, 1}), tlv(0x87, make([]byte, 15), []byte{1})))))
	names("a name of another kind", extensions(string(sequence(tlv(0x88, []byte{0x2a})))))
	names("bytes behind the names", extensions(a+"\x05\x00"))
	names("another attribute", sequence(challenge, set(tlv(utf8, []byte("password")))))
	names("no attribute", []byte{0x30, 3, 2, 1, 1})
}

func judge(text []byte) map[string]any {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != label {
		return map[string]any{"error": "PEM block type must be CERTIFICATE REQUEST"}
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	ips := []string{}
	for _, ip := range request.IPAddresses {
		ips = append(ips, ip.String())
	}
	return map[string]any{
		"commonName":    request.Subject.CommonName,
		"organizations": append([]string{}, request.Subject.Organization...),
		"dns":           append([]string{}, request.DNSNames...),
		"ips":           ips,
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	text, err := os.ReadFile(os.Args[1])
	check(err)
	block, _ := pem.Decode(text)
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	check(err)
	key = parsed.(*ecdsa.PrivateKey)
	out := json.NewEncoder(os.Stdout)
	for _, kind := range []struct {
		name string
		make func(func(name, text string))
	}{{"layout", layouts}, {"node", nodes}, {"subject", subjects}, {"attributes", attributes}} {
		kind.make(func(name, text string) {
			check(out.Encode(struct {
				Name    string         `json:"name"`
				Text    []byte         `json:"text"`
				Outcome map[string]any `json:"outcome"`
			}{kind.name + ": " + name, []byte(text), judge([]byte(text))}))
		})
	}
}
