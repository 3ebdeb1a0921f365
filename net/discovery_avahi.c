// The backend that asks avahi-daemon over D-Bus. Everything here runs on discovery's thread, in libavahi-client's own small poll loop; a call that
// waits for a stopped daemon (25 s at D-Bus) makes nobody else wait.
//
// A session is one connection to the daemon. It ends when the daemon goes; the next one begins after a pause, for as long as discovery is wanted.
#include "net/discovery.h"

#include "base/printable.h"
#include "proto/msg.h"

#include <avahi-client/client.h>
#include <avahi-client/lookup.h>
#include <avahi-client/publish.h>
#include <avahi-common/alternative.h>
#include <avahi-common/error.h>
#include <avahi-common/malloc.h>
#include <avahi-common/simple-watch.h>

#include <dlfcn.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define LIBRARY "libavahi-client.so.3" // it brings libavahi-common
#define RETRY_MS 30000
#define RENAMES_MAX 16
#define NO_DAEMON "avahi-daemon does not run on this machine (Debian: apt install avahi-daemon)"

#define API_TABLE(X) \
	X(client_new) X(client_free) X(client_errno) X(entry_group_new) X(entry_group_reset) X(entry_group_commit) X(entry_group_add_service_strlst) \
	X(entry_group_add_service_subtype) X(service_browser_new) X(service_resolver_new) X(service_resolver_free) X(simple_poll_new) X(simple_poll_free) \
	X(simple_poll_get) X(simple_poll_quit) X(simple_poll_loop) X(string_list_parse) X(string_list_serialize) X(string_list_free) X(strerror) X(free) \
	X(alternative_service_name)

struct api {
#define X(name) __typeof__(&avahi_##name) name;
	API_TABLE(X)
#undef X
};

// An announcement that is being, or has been, resolved; its resolver stays to tell of changes.
struct item {
	struct session *session; // NULL: free
	struct found_key key;
	AvahiServiceResolver *resolver;
	bool is_own;
	bool is_resolved;
};

struct session {
	const struct api *api;
	const struct discovery_want *want;
	struct discovery_sink *sink;
	AvahiSimplePoll *poll;
	AvahiClient *client;
	AvahiEntryGroup *group;
	AvahiServiceBrowser *browser;
	struct item items[FOUND_MAX];
	bool has_all; // those that were there at the beginning were named
	int n_renames;
	char instance[FOUND_INSTANCE_CAP];
};

static void end_session(struct session *s, const char *text)
{
	discovery_sink_state(s->sink, DISCOVERY_OFF, text);
	s->api->simple_poll_quit(s->poll);
}

static void end_with_error(struct session *s, const char *what)
{
	char text[ERRMSG_CAP];
	snprintf(text, sizeof text, "avahi-daemon refuses %s: %s", what, s->api->strerror(s->api->client_errno(s->client)));
	end_session(s, text);
}

// ---- being found

static int add_service(struct session *s, AvahiStringList *txt)
{
	char subtype[SERVICE_SUBTYPE_CAP];
	int interface = s->want->interface > 0 ? s->want->interface : AVAHI_IF_UNSPEC;
	int protocol = s->want->only_ipv4 ? AVAHI_PROTO_INET : AVAHI_PROTO_UNSPEC; // over IPv4 the IPv4 address is asked for, and no other
	service_subtype(&s->want->txt.id, subtype);
	int rc = s->api->entry_group_add_service_strlst(s->group, interface, protocol, 0, s->instance, SERVICE_TYPE, NULL, NULL, s->want->port, txt);
	if (rc == 0)
		rc = s->api->entry_group_add_service_subtype(s->group, interface, protocol, 0, s->instance, SERVICE_TYPE, NULL, subtype);
	return rc == 0 ? s->api->entry_group_commit(s->group) : rc;
}

// next_name: another service has ours. "kitchen" becomes "kitchen #2"; the name in the TXT record stays.
static bool next_name(struct session *s)
{
	char *other = s->n_renames++ < RENAMES_MAX ? s->api->alternative_service_name(s->instance) : NULL;
	if (other == NULL)
		return false;
	text_copy(s->instance, sizeof s->instance, other);
	s->api->free(other);
	return true;
}

static void announce(struct session *s)
{
	uint8_t record[SERVICE_TXT_MAX];
	AvahiStringList *txt = NULL;
	size_t len = service_txt_encode(&s->want->txt, record);
	int rc = s->api->string_list_parse(record, len, &txt);
	if (rc == 0)
		do {
			s->api->entry_group_reset(s->group);
			rc = add_service(s, txt);
		} while (rc == AVAHI_ERR_COLLISION && next_name(s));
	s->api->string_list_free(txt);
	if (rc != 0)
		end_with_error(s, "to announce this coordinator");
}

static void on_group(AvahiEntryGroup *group, AvahiEntryGroupState state, void *ctx)
{
	struct session *s = ctx;
	s->group = group;
	if (state == AVAHI_ENTRY_GROUP_ESTABLISHED)
		discovery_sink_state(s->sink, DISCOVERY_ON, s->instance);
	else if (state == AVAHI_ENTRY_GROUP_COLLISION && next_name(s))
		announce(s);
	else if (state == AVAHI_ENTRY_GROUP_COLLISION || state == AVAHI_ENTRY_GROUP_FAILURE)
		end_with_error(s, "to announce this coordinator");
}

static void start_announcing(struct session *s)
{
	if (s->group == NULL)
		s->group = s->api->entry_group_new(s->client, on_group, s);
	if (s->group == NULL)
		end_with_error(s, "to announce this coordinator");
	else
		announce(s);
}

// ---- finding

static struct item *find_item(struct session *s, const struct found_key *key)
{
	for (int i = 0; i < FOUND_MAX; i++) {
		struct item *t = &s->items[i];
		if (t->session != NULL && t->key.interface == key->interface && t->key.is_ipv6 == key->is_ipv6 && strcmp(t->key.instance, key->instance) == 0)
			return t;
	}
	return NULL;
}

static struct item *free_item(struct session *s)
{
	for (int i = 0; i < FOUND_MAX; i++)
		if (s->items[i].session == NULL)
			return &s->items[i];
	return NULL;
}

// settle: everybody who was named has answered, or has had his time.
static void settle(struct session *s)
{
	for (int i = 0; i < FOUND_MAX; i++)
		if (s->items[i].session != NULL && !s->items[i].is_resolved)
			return;
	if (s->has_all)
		discovery_sink_state(s->sink, DISCOVERY_SETTLED, "");
}

static void drop_item(struct item *t)
{
	struct session *s = t->session;
	if (t->resolver != NULL)
		s->api->service_resolver_free(t->resolver);
	*t = (struct item){0};
}

// take_record: false when it is none of ours, or says where nobody can be.
static bool take_record(struct item *t, const AvahiAddress *a, uint16_t port, AvahiStringList *txt)
{
	struct session *s = t->session;
	uint8_t record[SERVICE_TXT_MAX];
	struct found f = {.key = t->key, .port = port, .is_own = t->is_own};
	char name[IF_NAMESIZE];
	if (txt == NULL || s->api->string_list_serialize(txt, NULL, 0) > sizeof record)
		return false;
	size_t len = s->api->string_list_serialize(txt, record, sizeof record);
	if (service_txt_decode(record, len, &f.txt) != OK)
		return false;
	if (a->proto == AVAHI_PROTO_INET) {
		f.addr[10] = f.addr[11] = 0xff;
		memcpy(f.addr + 12, &a->data.ipv4.address, 4);
	} else if (a->proto == AVAHI_PROTO_INET6) {
		memcpy(f.addr, a->data.ipv6.address, 16);
	} else {
		return false;
	}
	if (t->key.interface > 0 && if_indextoname((unsigned)t->key.interface, name) != NULL)
		text_copy(f.interface_name, sizeof f.interface_name, name);
	discovery_sink_found(s->sink, &f);
	return true;
}

static void on_resolved(AvahiServiceResolver *r, AvahiIfIndex interface, AvahiProtocol protocol, AvahiResolverEvent event, const char *name,
	const char *type, const char *domain, const char *host, const AvahiAddress *a, uint16_t port, AvahiStringList *txt, AvahiLookupResultFlags flags,
	void *ctx)
{
	struct item *t = ctx;
	struct session *s = t->session;
	(void)r, (void)interface, (void)protocol, (void)name, (void)type, (void)domain, (void)host, (void)flags;
	t->is_resolved = true;
	if (event != AVAHI_RESOLVER_FOUND) { // in its place another may be looked at
		discovery_sink_gone(s->sink, &t->key);
		drop_item(t);
	} else if (a == NULL || !take_record(t, a, port, txt)) {
		discovery_sink_gone(s->sink, &t->key);
	}
	settle(s);
}

// begin_item: one answer per announcement, over the IP version it was heard on. More than there is room for are not looked at.
static void begin_item(struct session *s, const struct found_key *key, const char *name, const char *domain, bool is_own)
{
	struct item *t = find_item(s, key) == NULL ? free_item(s) : NULL;
	if (t == NULL)
		return;
	AvahiProtocol protocol = key->is_ipv6 ? AVAHI_PROTO_INET6 : AVAHI_PROTO_INET;
	*t = (struct item){.session = s, .key = *key, .is_own = is_own};
	t->resolver = s->api->service_resolver_new(s->client, key->interface, protocol, name, SERVICE_TYPE, domain, protocol, 0, on_resolved, t);
	if (t->resolver == NULL)
		*t = (struct item){0};
}

static void on_browse(AvahiServiceBrowser *b, AvahiIfIndex interface, AvahiProtocol protocol, AvahiBrowserEvent event, const char *name,
	const char *type, const char *domain, AvahiLookupResultFlags flags, void *ctx)
{
	struct session *s = ctx;
	struct found_key key = {.interface = interface, .is_ipv6 = protocol == AVAHI_PROTO_INET6};
	(void)b, (void)type;
	if (event == AVAHI_BROWSER_FAILURE) {
		end_with_error(s, "to look for coordinators");
	} else if (event == AVAHI_BROWSER_ALL_FOR_NOW) {
		s->has_all = true;
		settle(s);
	} else if (event == AVAHI_BROWSER_NEW || event == AVAHI_BROWSER_REMOVE) {
		if (strlen(name) >= sizeof key.instance || strcasecmp(domain, "local") != 0)
			return;
		memcpy(key.instance, name, strlen(name) + 1);
		if (event == AVAHI_BROWSER_NEW) {
			begin_item(s, &key, name, domain, (flags & AVAHI_LOOKUP_RESULT_LOCAL) != 0);
			return;
		}
		struct item *t = find_item(s, &key);
		if (t != NULL)
			drop_item(t);
		discovery_sink_gone(s->sink, &key);
		settle(s);
	}
}

static void start_browsing(struct session *s)
{
	char type[SERVICE_SUBTYPE_CAP] = SERVICE_TYPE;
	if (s->browser != NULL)
		return;
	if (s->want->is_pinned)
		service_subtype(&s->want->pinned, type);
	s->browser = s->api->service_browser_new(s->client, AVAHI_IF_UNSPEC, AVAHI_PROTO_UNSPEC, type, "local", 0, on_browse, s);
	if (s->browser == NULL)
		end_with_error(s, "to look for coordinators");
	else
		discovery_sink_state(s->sink, DISCOVERY_ON, "");
}

// ---- the session

static void on_client(AvahiClient *client, AvahiClientState state, void *ctx)
{
	struct session *s = ctx;
	s->client = client;
	if (state == AVAHI_CLIENT_S_RUNNING) {
		if (s->want->announce)
			start_announcing(s);
		if (s->want->browse)
			start_browsing(s);
	} else if (state == AVAHI_CLIENT_CONNECTING) {
		discovery_sink_state(s->sink, DISCOVERY_OFF, NO_DAEMON); // it goes on when the daemon comes
	} else if (state == AVAHI_CLIENT_FAILURE) {
		end_session(s, s->api->client_errno(client) == AVAHI_ERR_DISCONNECTED ? NO_DAEMON : s->api->strerror(s->api->client_errno(client)));
	} else if (s->group != NULL) { // the machine's own name is being settled: announced again afterwards
		s->api->entry_group_reset(s->group);
	}
}

static void on_stop(AvahiWatch *w, int fd, AvahiWatchEvent event, void *ctx)
{
	struct session *s = ctx;
	(void)w, (void)fd, (void)event;
	s->api->simple_poll_quit(s->poll);
}

static void hold_session(const struct api *api, const struct discovery_want *want, struct discovery_sink *sink)
{
	struct session s = {.api = api, .want = want, .sink = sink};
	int error = 0;
	printable_copy(want->txt.name, strlen(want->txt.name), s.instance, sizeof s.instance);
	if (s.instance[0] == '\0')
		text_copy(s.instance, sizeof s.instance, "hearth");
	s.poll = api->simple_poll_new();
	if (s.poll == NULL)
		return;
	const AvahiPoll *p = api->simple_poll_get(s.poll);
	AvahiWatch *stop = p->watch_new(p, discovery_sink_fd(sink), AVAHI_WATCH_IN, on_stop, &s);
	s.client = stop != NULL ? api->client_new(p, AVAHI_CLIENT_NO_FAIL, on_client, &s, &error) : NULL;
	if (s.client == NULL)
		discovery_sink_state(sink, DISCOVERY_OFF, error == AVAHI_ERR_DBUS_ERROR || error == AVAHI_ERR_NO_DAEMON ? NO_DAEMON : api->strerror(error));
	else
		api->simple_poll_loop(s.poll);
	if (s.client != NULL)
		api->client_free(s.client); // and with it group, browser, resolvers
	if (stop != NULL)
		p->watch_free(stop);
	api->simple_poll_free(s.poll);
}

static bool load(struct api *api)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_NODELETE);
	if (library == NULL)
		return false;
	bool ok = true;
#define X(name) ok = ok && (*(void **)&api->name = dlsym(library, "avahi_" #name)) != NULL;
	API_TABLE(X)
#undef X
	return ok;
}

static void run(const struct discovery_want *want, struct discovery_sink *sink, void *ctx)
{
	struct api api;
	struct pollfd stop = {.fd = discovery_sink_fd(sink), .events = POLLIN};
	(void)ctx;
	if (!load(&api)) {
		discovery_sink_state(sink, DISCOVERY_OFF, "avahi's client library is not installed (Debian: apt install libavahi-client3 avahi-daemon)");
		return;
	}
	do {
		hold_session(&api, want, sink);
		discovery_sink_clear(sink);
	} while (!discovery_sink_is_over(sink) && poll(&stop, 1, RETRY_MS) == 0);
}

const struct discovery_backend discovery_avahi = {run, NULL};
