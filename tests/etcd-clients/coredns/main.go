// CoreDNS on an endpoint: records of SkyDNS are put by etcd's client, and resolved through a CoreDNS whose plugin etcd
// reads them, also as a user with a password. Usage: go run . HOST:PORT
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/etcd"
	"github.com/miekg/dns"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const patience = 60 * time.Second

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func expect(holds bool, what string, values ...any) {
	if !holds {
		panic(fmt.Sprintf(what, values...))
	}
}

// start runs a CoreDNS on a port of its own, and returns its address.
func start(endpoint, more string) (*caddy.Instance, string) {
	caddy.Quiet, dnsserver.Quiet = true, true
	corefile := fmt.Sprintf(`.:0 {
    bind 127.0.0.1
    etcd skydns.local 0.0.10.in-addr.arpa {
        path /skydns
        endpoint http://%s
        %s
    }
}`, endpoint, more)
	instance, err := caddy.Start(caddy.CaddyfileInput{
		Contents: []byte(corefile), Filepath: "Corefile", ServerTypeName: "dns"})
	must(err)
	return instance, instance.Servers()[0].LocalAddr().String()
}

// ask returns the answers to a question, without times to live, in order; or the code of an answer without any.
func ask(server, name string, kind uint16) string {
	question := new(dns.Msg)
	question.SetQuestion(name, kind)
	client := dns.Client{Timeout: patience}
	answer, _, err := client.Exchange(question, server)
	must(err)
	if len(answer.Answer) == 0 {
		return dns.RcodeToString[answer.Rcode]
	}
	var records []string
	for _, record := range answer.Answer {
		fields := strings.Fields(record.String())
		records = append(records, strings.Join(append(fields[:1], fields[3:]...), " "))
	}
	sort.Strings(records)
	return strings.Join(records, "; ")
}

type row struct {
	name string
	kind uint16
	want string
}

func check(server string, rows []row) {
	for _, row := range rows {
		got := ask(server, row.name, row.kind)
		expect(got == row.want, "%s %s: %q instead of %q", row.name, dns.TypeToString[row.kind], got, row.want)
	}
}

func put(ctx context.Context, c *clientv3.Client, key, record string) {
	_, err := c.Put(ctx, key, record)
	must(err)
}

func records(ctx context.Context, c *clientv3.Client, server string) {
	put(ctx, c, "/skydns/local/skydns/web/x1", `{"host":"10.0.0.1","ttl":60}`)
	put(ctx, c, "/skydns/local/skydns/web/x2", `{"host":"10.0.0.2","port":8080,"priority":5,"weight":7}`)
	put(ctx, c, "/skydns/local/skydns/six", `{"host":"2001:db8::1"}`)
	put(ctx, c, "/skydns/local/skydns/alias", `{"host":"six.skydns.local"}`)
	put(ctx, c, "/skydns/local/skydns/text", `{"text":"some-text"}`)
	put(ctx, c, "/skydns/local/skydns/mail", `{"host":"10.0.0.9","mail":true,"priority":10}`)
	put(ctx, c, "/skydns/arpa/in-addr/10/0/0/1", `{"host":"x1.web.skydns.local"}`)
	check(server, []row{
		{"x1.web.skydns.local.", dns.TypeA, "x1.web.skydns.local. A 10.0.0.1"},
		{"web.skydns.local.", dns.TypeA, "web.skydns.local. A 10.0.0.1; web.skydns.local. A 10.0.0.2"},
		{"x2.web.skydns.local.", dns.TypeSRV, "x2.web.skydns.local. SRV 5 100 8080 x2.web.skydns.local."},
		{"six.skydns.local.", dns.TypeAAAA, "six.skydns.local. AAAA 2001:db8::1"},
		{"alias.skydns.local.", dns.TypeCNAME, "alias.skydns.local. CNAME six.skydns.local."},
		{"text.skydns.local.", dns.TypeTXT, `text.skydns.local. TXT "some-text"`},
		{"mail.skydns.local.", dns.TypeMX, "mail.skydns.local. MX 10 mail.skydns.local."},
		{"1.0.0.10.in-addr.arpa.", dns.TypePTR, "1.0.0.10.in-addr.arpa. PTR x1.web.skydns.local."},
		{"nothing.skydns.local.", dns.TypeA, "NXDOMAIN"},
	})
}

func changes(ctx context.Context, c *clientv3.Client, server string) {
	put(ctx, c, "/skydns/local/skydns/web/x1", `{"host":"10.0.0.7"}`)
	check(server, []row{{"x1.web.skydns.local.", dns.TypeA, "x1.web.skydns.local. A 10.0.0.7"}})
	lease, err := c.Grant(ctx, 3600)
	must(err)
	_, err = c.Put(ctx, "/skydns/local/skydns/leased", `{"host":"10.0.0.8"}`, clientv3.WithLease(lease.ID))
	must(err)
	check(server, []row{{"leased.skydns.local.", dns.TypeA, "leased.skydns.local. A 10.0.0.8"}})
	_, err = c.Revoke(ctx, lease.ID)
	must(err)
	check(server, []row{{"leased.skydns.local.", dns.TypeA, "NXDOMAIN"}})
	for n := range 1000 {
		put(ctx, c, fmt.Sprintf("/skydns/local/skydns/many/n%04d", n), `{"host":"10.0.1.1"}`)
	}
	check(server, []row{{"n0999.many.skydns.local.", dns.TypeA, "n0999.many.skydns.local. A 10.0.1.1"}})
	_, err = c.Delete(ctx, "/skydns/local/skydns/many/", clientv3.WithPrefix())
	must(err)
	check(server, []row{{"n0999.many.skydns.local.", dns.TypeA, "NXDOMAIN"}})
}

// users has CoreDNS log in as a user that may read the records.
func users(ctx context.Context, c *clientv3.Client, endpoint string) {
	_, err := c.UserAdd(ctx, "root", "root-password")
	must(err)
	_, err = c.RoleAdd(ctx, "root")
	must(err)
	_, err = c.UserGrantRole(ctx, "root", "root")
	must(err)
	_, err = c.RoleAdd(ctx, "dns")
	must(err)
	_, err = c.RoleGrantPermission(ctx, "dns", "/skydns/", clientv3.GetPrefixRangeEnd("/skydns/"),
		clientv3.PermissionType(clientv3.PermRead))
	must(err)
	_, err = c.UserAdd(ctx, "coredns", "password")
	must(err)
	_, err = c.UserGrantRole(ctx, "coredns", "dns")
	must(err)
	_, err = c.AuthEnable(ctx)
	must(err)
	root, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, Username: "root", Password: "root-password"})
	must(err)
	defer func() {
		_, err = root.AuthDisable(ctx)
		must(err)
		for _, user := range []string{"root", "coredns"} {
			_, err = root.UserDelete(ctx, user)
			must(err)
		}
		for _, role := range []string{"root", "dns"} {
			_, err = root.RoleDelete(ctx, role)
			must(err)
		}
		root.Close()
	}()
	server, address := start(endpoint, "credentials coredns password")
	defer server.Stop()
	check(address, []row{{"x1.web.skydns.local.", dns.TypeA, "x1.web.skydns.local. A 10.0.0.7"}})
	put(ctx, root, "/skydns/local/skydns/web/x1", `{"host":"10.0.0.1"}`)
	check(address, []row{{"x1.web.skydns.local.", dns.TypeA, "x1.web.skydns.local. A 10.0.0.1"}})
}

func main() {
	endpoint := os.Args[1]
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: patience})
	must(err)
	defer c.Close()
	_, err = c.Delete(context.Background(), "/skydns/", clientv3.WithPrefix())
	must(err)
	server, address := start(endpoint, "")
	steps := []struct {
		name string
		run  func(context.Context)
	}{
		{"records", func(ctx context.Context) { records(ctx, c, address) }},
		{"changes", func(ctx context.Context) { changes(ctx, c, address) }},
		{"users", func(ctx context.Context) { users(ctx, c, endpoint) }},
	}
	failed := false
	for _, step := range steps {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		func() {
			defer cancel()
			defer func() {
				if problem := recover(); problem != nil {
					failed = true
					fmt.Printf("failed: coredns: %s: %v\n", step.name, problem)
				}
			}()
			step.run(ctx)
			fmt.Printf("ok: coredns: %s\n", step.name)
		}()
	}
	server.Stop()
	if failed {
		os.Exit(1)
	}
}
