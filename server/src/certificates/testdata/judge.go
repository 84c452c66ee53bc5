// Judges certificate requests as kube-apiserver does (kubernetes pkg/apis/certificates, ParseCSR): reads lines of
// {"name", "text"} (base64) and writes them with what Go's encoding/pem and crypto/x509 make of them.
//
//	PLINTH_WRITE_REQUESTS=/tmp/requests cargo test --release -p plinth-server --lib requests_for_the_judge
//	go run judge.go < /tmp/requests > judged.json
package main

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
)

type row struct {
	Name    string         `json:"name"`
	Text    []byte         `json:"text"`
	Outcome map[string]any `json:"outcome"`
}

func judge(text []byte) map[string]any {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
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

func main() {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for in.More() {
		var r row
		if err := in.Decode(&r); err != nil {
			panic(err)
		}
		r.Outcome = judge(r.Text)
		if err := out.Encode(r); err != nil {
			panic(err)
		}
	}
}
